//! The errors that libraries report and nobody else tells.

use std::io;
use std::sync::OnceLock;

use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber, span};
use tracing_subscriber::filter::LevelFilter;

/// Prints on standard error what libraries report as an error, from now on.
pub(crate) fn print() {
    // It fails only where somebody prints already, and nobody does.
    let _ = tracing::subscriber::set_global_default(Printer::default());
}

/// Prints errors. What prints them is made at the first one: it has room for thousands of threads, and hardly any run
/// of the program needs it.
#[derive(Default)]
struct Printer(OnceLock<Box<dyn Subscriber + Send + Sync>>);

impl Printer {
    fn made(&self) -> &(dyn Subscriber + Send + Sync) {
        &**self.0.get_or_init(|| {
            Box::new(
                tracing_subscriber::fmt()
                    .with_max_level(LevelFilter::ERROR)
                    .with_writer(io::stderr)
                    .without_time()
                    .finish(),
            )
        })
    }
}

impl Subscriber for Printer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::ERROR)
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        self.made().new_span(span)
    }

    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        self.made().record(span, values);
    }

    fn record_follows_from(&self, span: &span::Id, follows: &span::Id) {
        self.made().record_follows_from(span, follows);
    }

    fn event_enabled(&self, event: &Event<'_>) -> bool {
        self.made().event_enabled(event)
    }

    fn event(&self, event: &Event<'_>) {
        self.made().event(event);
    }

    fn enter(&self, span: &span::Id) {
        self.made().enter(span);
    }

    fn exit(&self, span: &span::Id) {
        self.made().exit(span);
    }

    fn clone_span(&self, span: &span::Id) -> span::Id {
        self.made().clone_span(span)
    }

    fn try_close(&self, span: span::Id) -> bool {
        self.made().try_close(span)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_prints_is_made_at_the_first_error() {
        let printer = Arc::new(Printer::default());
        tracing::subscriber::with_default(printer.clone(), || {
            tracing::warn!("nobody prints this");
            assert!(printer.0.get().is_none());
            tracing::error_span!("within").in_scope(|| tracing::error!("an error of a library"));
            assert!(printer.0.get().is_some());
        });
    }
}
