use std::time::Duration;

/// How a child that has to go is told so, and how long each step may take.
///
/// The steps come in this order, each only when the child is still there: the gentle step, TERM to its
/// process group, KILL to its process group.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shutdown {
    /// The first step. [`Gentle::None`] by default.
    pub gentle: Gentle,
    /// From the gentle step to TERM. 5 seconds by default.
    pub gentle_grace: Duration,
    /// From TERM to KILL. 5 seconds by default.
    pub term_grace: Duration,
    /// How long a child may take to die of KILL, and its leftovers after it, before the call gives up on
    /// them and says so. 5 seconds by default.
    pub kill_grace: Duration,
    /// From [`delivered`](crate::Child::delivered) to the first step. 10 seconds by default.
    pub delivered_grace: Duration,
    /// How long the call waits after the child's exit for output of those who hold its pipes open.
    /// 250 milliseconds by default. What the child itself wrote is read in any case.
    pub drain: Duration,
}

/// What a program understands as a request to stop and clean up.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Gentle {
    /// Nothing: begin with TERM.
    #[default]
    None,
    /// SIGINT to the child alone.
    Interrupt,
    /// These bytes on its standard input, which must be [`Input::Piped`](crate::Input::Piped) and still
    /// open. Otherwise the step is skipped.
    Write(Vec<u8>),
    /// The end of its standard input, which must be [`Input::Piped`](crate::Input::Piped) and still
    /// open. Otherwise the step is skipped.
    CloseInput,
}

impl Shutdown {
    /// Returns the same steps with another first one.
    #[must_use]
    pub fn with_gentle(mut self, gentle: Gentle) -> Self {
        self.gentle = gentle;
        self
    }

    /// Returns the same steps where gentle step, TERM and KILL each get `grace`.
    #[must_use]
    pub fn with_graces(mut self, grace: Duration) -> Self {
        self.gentle_grace = grace;
        self.term_grace = grace;
        self.kill_grace = grace;
        self
    }

    /// Returns the same steps with another grace for a child that has delivered.
    #[must_use]
    pub fn with_delivered_grace(mut self, grace: Duration) -> Self {
        self.delivered_grace = grace;
        self
    }

    /// Returns the same steps with another wait for late output.
    #[must_use]
    pub fn with_drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            gentle: Gentle::None,
            gentle_grace: Duration::from_secs(5),
            term_grace: Duration::from_secs(5),
            kill_grace: Duration::from_secs(5),
            delivered_grace: Duration::from_secs(10),
            drain: Duration::from_millis(250),
        }
    }
}
