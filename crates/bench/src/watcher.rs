//! An observer of the daemon during a run, as monitoring is in use: a scrape of `/metrics` each second, and an overview
//! that stays open in a browser. It costs the daemon what it costs in use; its answers are read and thrown away.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::error::Error;

const SCRAPE_EVERY: Duration = Duration::from_secs(1);
/// The page looks again after this many scrapes.
const PAGE_EVERY: u64 = 5;
/// The daemon opens the operator's socket after its ports. It is tried this often, with pauses.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// The observer. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Watcher(#[expect(dead_code, reason = "the thread waits for its end")] Sender<()>);

impl Watcher {
    /// Watches the daemon with this operator's socket. [`Error::Io`] if it does not answer.
    pub(crate) fn start(socket: &Path) -> Result<Self, Error> {
        let mut tries = 1;
        while let Err(why) = look(socket, "/metrics") {
            if tries == TRIES {
                return Err(Error::io("scrape the daemon")(why));
            }
            tries += 1;
            thread::sleep(PAUSE);
        }
        let (socket, (lives, ends)) = (socket.to_owned(), mpsc::channel());
        thread::spawn(move || {
            for second in 0_u64.. {
                // A daemon that is killed, or restarts, does not answer.
                let _ = look(&socket, "/metrics");
                if second.is_multiple_of(PAGE_EVERY) {
                    let _ = look(&socket, "/");
                }
                if ends.recv_timeout(SCRAPE_EVERY) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        Ok(Self(lives))
    }
}

fn look(socket: &Path, path: &str) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let is_good = answer.starts_with(b"HTTP/1.1 200");
    if is_good {
        Ok(())
    } else {
        Err(std::io::Error::other("not answered with 200"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_scrape_and_a_page_are_asked_for_until_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn(move || {
            let mut asked = Vec::new();
            for _ in 0..3 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = vec![0; 200];
                let read = stream.read(&mut request).unwrap();
                asked.push(
                    String::from_utf8_lossy(&request[..read])
                        .split(' ')
                        .nth(1)
                        .unwrap()
                        .to_owned(),
                );
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            }
            asked
        });
        let watcher = Watcher::start(&socket).unwrap();
        assert_eq!(server.join().unwrap(), ["/metrics", "/metrics", "/"]);
        drop(watcher);
        assert!(Watcher::start(&socket).is_err(), "nobody listens any more");
    }
}
