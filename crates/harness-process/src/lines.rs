use std::{borrow::Cow, io};

use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads lines from a stream, as an agent writes them that speaks one JSON document a line.
///
/// The buffer grows with the longest line, up to a bound, and shrinks again. The work is linear in the
/// length of the stream, whatever the pieces it comes in.
///
/// ```
/// use harness_process::{Line, LineReader};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let mut lines = LineReader::new(&b"{\"a\":1}\r\n{\"b\":2}"[..], 1024);
/// assert_eq!(lines.next_line().await?, Some(Line::Whole(b"{\"a\":1}")));
/// assert_eq!(lines.next_line().await?, Some(Line::Whole(b"{\"b\":2}")));
/// assert_eq!(lines.next_line().await?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LineReader<R> {
    stream: R,
    max: usize,
    buffer: Vec<u8>,
    /// Where the next line begins.
    begin: usize,
    /// Up to where no end of line was found.
    searched: usize,
    /// How many bytes of a line that is too long have been dropped, while one is being dropped.
    dropped: Option<u64>,
}

/// One line, without its end.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Line<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// It was longer than the bound. The next line is not affected.
    TooLong {
        /// How long it was, in bytes.
        length: u64,
    },
}

impl<'a> Line<'a> {
    /// Returns the line as text, with U+FFFD for what is no UTF-8. Nothing if it was too long.
    #[must_use]
    pub fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Whole(bytes) => Some(String::from_utf8_lossy(bytes)),
            Self::TooLong { .. } => None,
        }
    }
}

const PIECE: usize = 16 * 1024;

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// A bound that leaves room for what agents really write in a line: 64 MiB.
    pub const MAX: usize = 64 * 1024 * 1024;

    /// Returns a reader of `stream` whose lines may have `max` bytes.
    pub fn new(stream: R, max: usize) -> Self {
        Self { stream, max, buffer: Vec::new(), begin: 0, searched: 0, dropped: None }
    }

    /// Returns the next line, or nothing at the end of the stream.
    ///
    /// A line ends with a newline, before which one carriage return is taken away, or with the stream.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost.
    ///
    /// # Errors
    ///
    /// What the stream fails with.
    pub async fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[self.searched..]);
            if let Some(offset) = found {
                let end = self.searched + offset;
                return Ok(Some(self.line(end, end + 1)));
            }
            self.searched = self.buffer.len();
            self.make_room();
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                let end = self.buffer.len();
                let rest = end > self.begin || self.dropped.is_some();
                return Ok(if rest { Some(self.line(end, end)) } else { None });
            }
        }
    }

    /// Takes the line that ends at `end`, when the next one begins at `next`.
    fn line(&mut self, end: usize, next: usize) -> Line<'_> {
        let begin = std::mem::replace(&mut self.begin, next);
        self.searched = next;
        let line = &self.buffer[begin..end];
        let length = line.len() as u64 + self.dropped.take().unwrap_or(0);
        if length > self.max as u64 {
            return Line::TooLong { length };
        }
        Line::Whole(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Forgets the lines that were handed out, and what there is of one that is too long already.
    fn make_room(&mut self) {
        if self.begin > 0 {
            self.buffer.drain(..self.begin);
            self.searched -= self.begin;
            self.begin = 0;
            if self.buffer.len() < PIECE {
                self.buffer.shrink_to(PIECE);
            }
        }
        if self.buffer.len() > self.max || self.dropped.is_some() {
            *self.dropped.get_or_insert(0) += self.buffer.len() as u64;
            self.buffer.clear();
            self.searched = 0;
        }
        if self.buffer.capacity() - self.buffer.len() < PIECE / 4 {
            self.buffer.reserve(PIECE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        task::{Context, Poll},
        time::Instant,
    };

    use tokio::io::ReadBuf;

    use super::*;

    /// Hands out its bytes in pieces of a given size.
    struct Pieces<'a> {
        bytes: &'a [u8],
        size: usize,
    }

    impl AsyncRead for Pieces<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let count = self.size.min(self.bytes.len()).min(buffer.remaining());
            let (piece, rest) = self.bytes.split_at(count);
            buffer.put_slice(piece);
            self.bytes = rest;
            Poll::Ready(Ok(()))
        }
    }

    #[track_caller]
    fn check(text: &str, max: usize, expected: &[&str]) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for size in [1, 2, 3, 1000] {
            let mut lines = LineReader::new(Pieces { bytes: text.as_bytes(), size }, max);
            let mut found = Vec::new();
            while let Some(line) = runtime.block_on(lines.next_line()).unwrap() {
                found.push(match line {
                    Line::Whole(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                    Line::TooLong { length } => format!("{length} bytes"),
                });
            }
            assert_eq!(found, expected, "{text:?} in pieces of {size}");
        }
    }

    #[test]
    fn lines_come_one_by_one_whatever_the_pieces() {
        check("", 9, &[]);
        check("\n", 9, &[""]);
        check("a\n\nb\n", 9, &["a", "", "b"]);
        check("a\r\nb\r\rc\r\n", 9, &["a", "b\r\rc"]);
        check("a\nrest", 9, &["a", "rest"]);
        check("é😀\n語", 9, &["é😀", "語"]);
    }

    #[test]
    fn a_line_that_is_too_long_costs_only_itself() {
        check("12345\n123456\n12345", 5, &["12345", "6 bytes", "12345"]);
        check("a\n1234567890123456789012345\nb\n", 5, &["a", "25 bytes", "b"]);
        check("1234567", 5, &["7 bytes"]);
    }

    #[tokio::test]
    async fn eight_megabytes_in_single_bytes_take_linear_time() {
        let time = async |length: usize| {
            let bytes = vec![b'x'; length];
            let mut lines = LineReader::new(Pieces { bytes: &bytes, size: 1 }, LineReader::<&[u8]>::MAX);
            let begun = Instant::now();
            assert_eq!(lines.next_line().await.unwrap(), Some(Line::Whole(&bytes[..])));
            begun.elapsed()
        };
        let (small, large) = (time(1_000_000).await, time(8_000_000).await);
        assert!(large < small * 40, "eight times the length took {large:?} instead of {small:?}");
    }

    #[tokio::test]
    async fn the_buffer_stays_within_its_bound() {
        let bytes = vec![b'x'; 5_000_000];
        let mut lines = LineReader::new(Pieces { bytes: &bytes, size: 4096 }, 100_000);
        assert_eq!(lines.next_line().await.unwrap(), Some(Line::TooLong { length: 5_000_000 }));
        assert!(lines.buffer.capacity() < 300_000, "{}", lines.buffer.capacity());
    }
}
