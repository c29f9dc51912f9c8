//! What answers in systemd's place: OVN-Kubernetes wants to hear of units that start again, and does not start without.
//!
//! In: a socket. Out: an empty answer to each method call (D-Bus specification, "Message Protocol" and "Authentication Protocol").
//! Nothing ever happens here that it would have to be told of.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context, Result};

/// Answers for ever.
pub(crate) fn answer(socket: &Path) -> Result<()> {
    drop(std::fs::remove_file(socket));
    let listener = UnixListener::bind(socket).with_context(|| socket.display().to_string())?;
    for stream in listener.incoming() {
        let stream = stream?;
        // Whoever hangs up in the middle has had enough.
        std::thread::spawn(move || drop(serve(stream)));
    }
    Ok(())
}

fn serve(mut stream: UnixStream) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    reader.read_exact(&mut [0])?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let said: &[u8] = match line.trim() {
            "BEGIN" => break,
            "AUTH" => b"REJECTED EXTERNAL\r\n",
            line if line.starts_with("AUTH ") => b"OK 0123456789abcdef0123456789abcdef\r\n",
            _ => b"ERROR\r\n",
        };
        stream.write_all(said)?;
    }
    for number in 1_u32.. {
        let mut fixed = [0; 16];
        reader.read_exact(&mut fixed)?;
        let [order, _, _, _, head @ ..] = fixed;
        let word = |at: usize| {
            let bytes = head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            let bytes: [u8; 4] = bytes.unwrap_or_default();
            if order == b'l' {
                u32::from_le_bytes(bytes)
            } else {
                u32::from_be_bytes(bytes)
            }
        };
        let (body, serial, fields) = (word(0), word(4), word(8));
        let rest = u64::from(fields.div_ceil(8)) * 8 + u64::from(body);
        std::io::copy(&mut (&mut reader).take(rest), &mut std::io::sink())?;
        stream.write_all(&empty_return(number, serial))?;
    }
    Ok(())
}

/// METHOD_RETURN without a body: its one field is REPLY_SERIAL.
fn empty_return(number: u32, serial: u32) -> Vec<u8> {
    let field = [&[5, 1, b'u', 0][..], &serial.to_le_bytes()].concat();
    let length = u32::try_from(field.len()).unwrap_or_default();
    let head = [0, number, length].map(u32::to_le_bytes).concat();
    [&[b'l', 2, 1, 1][..], &head, &field].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_the_call_it_is_for() {
        let bytes = empty_return(1, 7);
        assert_eq!(bytes.len(), 24);
        assert_eq!(bytes[20..24], [7, 0, 0, 0]);
    }
}
