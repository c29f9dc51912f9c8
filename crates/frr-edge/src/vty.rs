//! One question to one FRR daemon over its vty socket, as vtysh asks it, without starting a process.
//! In: a daemon's name and a command. Out: its answer as text. Invariant: read-only commands; a deadline of five seconds.
//! Not here: what the answer means (`show`).
//!
//! The daemon reads a command that ends with a zero byte, and answers with text, three zero bytes and a status byte.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::Frr;

const DEADLINE: Duration = Duration::from_secs(5);
/// An answer larger than this is an error: a node's configuration is far smaller.
const LARGEST: usize = 256 << 20;

/// What asking for a daemon that is not there ends with.
const GONE: [ErrorKind; 7] = [
    ErrorKind::NotFound,
    ErrorKind::ConnectionRefused,
    ErrorKind::ConnectionReset,
    ErrorKind::ConnectionAborted,
    ErrorKind::BrokenPipe,
    ErrorKind::NotConnected,
    ErrorKind::UnexpectedEof,
];

/// Whether this is what asking for a daemon that is not there ends with. All else is no word of FRR's: we may not ask, its
/// queue is full, or we have no descriptor left.
#[must_use]
pub fn says_gone(error: &std::io::Error) -> bool {
    GONE.contains(&error.kind())
}

/// Why a daemon did not answer.
#[derive(Debug, thiserror::Error)]
pub enum VtyError {
    /// It does not run ([`says_gone`]), or the socket cannot be used.
    #[error("cannot ask {daemon}")]
    Io {
        /// zebra, bgpd, ...
        daemon: String,
        /// Why.
        source: std::io::Error,
    },
    /// No answer in time.
    #[error("{daemon} does not answer")]
    Deadline {
        /// zebra, bgpd, ...
        daemon: String,
    },
    /// It refused the command.
    #[error("{daemon} refused {command:?} with status {status}")]
    Refused {
        /// zebra, bgpd, ...
        daemon: String,
        /// The command.
        command: String,
        /// FRR's status byte; 0 would be success.
        status: u8,
    },
}

impl Frr {
    /// Whether a daemon runs: somebody listens on its vty socket. One that is frozen runs, and so does one before whose
    /// binary others queue.
    ///
    /// # Errors
    /// When that cannot be found out: the socket may not be used, or we have no descriptor left.
    pub async fn runs(&self, daemon: &str) -> Result<bool, VtyError> {
        match tokio::time::timeout(DEADLINE, self.knock(daemon)).await {
            Ok(Ok(_)) | Err(_) => Ok(true),
            Ok(Err(error)) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Ok(Err(error)) if says_gone(&error) => Ok(false),
            Ok(Err(source)) => Err(VtyError::Io {
                daemon: daemon.to_owned(),
                source,
            }),
        }
    }

    /// Never blocks: where the queue is full the answer is `WouldBlock`.
    async fn knock(&self, daemon: &str) -> std::io::Result<UnixStream> {
        UnixStream::connect(self.vty_socket.join(format!("{daemon}.vty"))).await
    }

    /// Asks one daemon.
    ///
    /// # Errors
    /// When it does not run, does not answer in five seconds, or refuses the command.
    pub async fn ask(&self, daemon: &str, command: &str) -> Result<String, VtyError> {
        let asked = async {
            let mut stream = self.knock(daemon).await?;
            exchange(&mut stream, "enable").await?;
            exchange(&mut stream, command).await
        };
        let (text, status) = tokio::time::timeout(DEADLINE, asked)
            .await
            .map_err(|_| VtyError::Deadline {
                daemon: daemon.to_owned(),
            })?
            .map_err(|source| {
                let daemon = daemon.to_owned();
                // It is there, and does not answer those who asked before either.
                if source.kind() == ErrorKind::WouldBlock {
                    VtyError::Deadline { daemon }
                } else {
                    VtyError::Io { daemon, source }
                }
            })?;
        if status != 0 {
            return Err(VtyError::Refused {
                daemon: daemon.to_owned(),
                command: command.to_owned(),
                status,
            });
        }
        Ok(text)
    }
}

async fn exchange(stream: &mut UnixStream, command: &str) -> std::io::Result<(String, u8)> {
    stream.write_all(command.as_bytes()).await?;
    stream.write_all(&[0]).await?;
    let mut answer = Vec::new();
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Some((text, [0, 0, 0, status])) = answer.split_last_chunk::<4>() {
            return Ok((String::from_utf8_lossy(text).into_owned(), *status));
        }
        if answer.len() > LARGEST {
            return Err(std::io::Error::other("the answer is too large"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener of FRR's kind: five may wait, and nobody is let in.
    fn frozen(socket: &std::path::Path) -> std::os::fd::OwnedFd {
        use nix::sys::socket::{
            AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket as open,
        };
        let fd = open(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::empty(),
            None,
        )
        .unwrap();
        bind(
            std::os::fd::AsRawFd::as_raw_fd(&fd),
            &UnixAddr::new(socket).unwrap(),
        )
        .unwrap();
        listen(&fd, Backlog::new(5).unwrap()).unwrap();
        fd
    }

    #[tokio::test]
    async fn a_daemon_before_whose_door_others_queue_runs_and_does_not_answer() {
        let folder = tempfile::tempdir().unwrap();
        let frr = Frr::new(folder.path().to_owned(), folder.path().join("frr.conf"));
        assert!(!frr.runs("bgpd").await.unwrap());
        let listener = frozen(&folder.path().join("bgpd.vty"));
        let probe = async {
            for _ in 0..10 {
                assert!(frr.runs("bgpd").await.unwrap());
            }
            assert!(matches!(
                frr.ask("bgpd", "show x").await,
                Err(VtyError::Deadline { .. })
            ));
        };
        let time = std::time::Duration::from_secs(30);
        tokio::time::timeout(time, probe).await.unwrap();
        drop(listener);
        assert!(!frr.runs("bgpd").await.unwrap(), "its socket stays behind");
    }

    #[test]
    fn what_we_lack_ourselves_is_no_word_of_frrs() {
        for kind in GONE {
            assert!(says_gone(&kind.into()), "{kind}");
        }
        // EACCES, EPERM, EMFILE, ENFILE, ENOBUFS, ENOMEM, EAGAIN of a full queue.
        for number in [13, 1, 24, 23, 105, 12, 11] {
            let error = std::io::Error::from_raw_os_error(number);
            assert!(!says_gone(&error), "{error}");
        }
    }

    #[tokio::test]
    async fn a_socket_that_cannot_be_used_says_nothing_about_its_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let frr = Frr::new(folder.path().to_owned(), folder.path().join("frr.conf"));
        let socket = folder.path().join("bgpd.vty");
        std::os::unix::fs::symlink(&socket, &socket).unwrap();
        let error = frr.runs("bgpd").await.unwrap_err();
        assert_eq!(error.to_string(), "cannot ask bgpd");
        assert!(matches!(
            frr.ask("bgpd", "x").await,
            Err(VtyError::Io { source, .. }) if !says_gone(&source)
        ));
    }

    #[tokio::test]
    async fn an_answer_that_comes_in_pieces_is_put_together_and_a_refusal_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let frr = Frr::new(folder.path().to_owned(), folder.path().join("frr.conf"));
        assert!(matches!(
            frr.ask("bgpd", "x").await,
            Err(VtyError::Io { .. })
        ));
        let listener = tokio::net::UnixListener::bind(folder.path().join("bgpd.vty")).unwrap();
        tokio::spawn(async move {
            for status in [0_u8, 3] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = [0_u8; 64];
                let n = stream.read(&mut buffer).await.unwrap();
                assert_eq!(&buffer[..n], b"enable\0");
                stream.write_all(&[0, 0, 0, 0]).await.unwrap();
                let n = stream.read(&mut buffer).await.unwrap();
                assert!(buffer[..n].starts_with(b"show"));
                for piece in [b"hel".as_slice(), b"lo", &[0], &[0, 0], &[status]] {
                    stream.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                let _closed = stream.read(&mut buffer).await;
            }
        });
        assert_eq!(frr.ask("bgpd", "show x").await.unwrap(), "hello");
        assert!(matches!(
            frr.ask("bgpd", "show y").await,
            Err(VtyError::Refused { status: 3, .. })
        ));
    }
}
