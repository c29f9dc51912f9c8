//! Echo requests and replies as bytes.
//! In: a size. Out: a message with random identifier, sequence number and payload; whether another one is its answer.
//! Invariant: whatever bytes come, nothing panics. Not here: sockets.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use super::socket::Kind;

/// Length of the message's own header, bytes.
const HEADER: usize = 8;
/// Lengths of the headers of IP, bytes: without options, and the most that IPv4 can have.
const IPV4: usize = 20;
const IPV4_MOST: usize = 60;
const IPV6: usize = 40;

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
    size: u32,
    /// Type of its answer.
    answer: u8,
}

impl Request {
    /// One whose IP packet has so many bytes; `None` where there is no such packet.
    pub(super) fn new(to: IpAddr, kind: Kind, size: u32) -> Option<Self> {
        let (ip, request, answer) = match to {
            IpAddr::V4(_) => (IPV4, 8, 0),
            IpAddr::V6(_) => (IPV6, 128, 129),
        };
        let length = usize::try_from(size).ok()?.checked_sub(ip)?;
        let random = RandomState::new();
        let [i1, i2, s1, s2, ..] = random.hash_one(1_u8).to_be_bytes();
        let nonce = random.hash_one(2_u8).to_be_bytes();
        let mut bytes = vec![request, 0, 0, 0, i1, i2, s1, s2];
        bytes.extend(nonce);
        if length < bytes.len() || size > u32::from(u16::MAX) {
            return None;
        }
        bytes.resize(length, 0);
        // The kernel fills in that of ping sockets and of all ICMPv6.
        if kind == Kind::Raw && to.is_ipv4() {
            let [high, low] = checksum(&bytes).to_be_bytes();
            for (place, byte) in bytes.iter_mut().skip(2).zip([high, low]) {
                *place = byte;
            }
        }
        Some(Self {
            bytes,
            size,
            answer,
        })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of the IP packet.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Bytes that its answer may need, and one more, by which a longer one is told.
    pub(super) fn answer_len(&self) -> usize {
        self.bytes.len() + IPV4_MOST + 1
    }

    /// Whether these bytes, as a socket of this kind gives them, are its answer.
    pub(super) fn is_answered_by(&self, received: &[u8], kind: Kind) -> bool {
        let message = match (kind, self.answer) {
            // Raw sockets of IPv4 give the header of IP, too.
            (Kind::Raw, 0) => without_ipv4(received),
            _ => Some(received),
        };
        let parts = message.and_then(|message| message.split_at_checked(HEADER));
        let own = self.bytes.split_at_checked(HEADER);
        let (Some((header, payload)), Some((own_header, own_payload))) = (parts, own) else {
            return false;
        };
        let (&[answer, code, _, _, i1, i2, s1, s2], &[_, _, _, _, o1, o2, t1, t2]) =
            (header, own_header)
        else {
            return false;
        };
        // A ping socket's identifier is the kernel's, which gives it no other one's answers.
        let is_ours = kind == Kind::Ping || [i1, i2] == [o1, o2];
        is_ours
            && (answer, code) == (self.answer, 0)
            && [s1, s2] == [t1, t2]
            && payload == own_payload
    }
}

/// What follows the header of IPv4.
fn without_ipv4(packet: &[u8]) -> Option<&[u8]> {
    let words = usize::from(packet.first()? & 0x0f);
    packet.get(words * 4..)
}

/// The internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        let word = match pair {
            [high, low] => u16::from_be_bytes([*high, *low]),
            [high] => u16::from_be_bytes([*high, 0]),
            _ => 0,
        };
        sum = sum.wrapping_add(u32::from(word));
    }
    while sum > u32::from(u16::MAX) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4() -> IpAddr {
        "192.0.2.1".parse().unwrap()
    }

    fn answer_to(request: &Request) -> Vec<u8> {
        let mut bytes = request.bytes().to_vec();
        bytes[0] = request.answer;
        bytes
    }

    #[test]
    fn a_request_has_the_size_that_was_asked_for() {
        let request = Request::new(v4(), Kind::Raw, 9000).unwrap();
        assert_eq!(request.bytes().len(), 9000 - 20);
        assert_eq!(checksum(request.bytes()), 0, "summed up with itself");
        let request = Request::new("2001:db8::1".parse().unwrap(), Kind::Ping, 1280).unwrap();
        assert_eq!(request.bytes().len(), 1280 - 40);
        for none in [0, 35, 65_536, u32::MAX] {
            assert!(Request::new(v4(), Kind::Ping, none).is_none(), "{none}");
        }
    }

    #[test]
    fn only_its_own_answer_is_one() {
        let request = Request::new(v4(), Kind::Ping, 100).unwrap();
        let answer = answer_to(&request);
        assert!(request.is_answered_by(&answer, Kind::Ping));
        // The request itself, and another one's answer.
        assert!(!request.is_answered_by(request.bytes(), Kind::Ping));
        let other = answer_to(&Request::new(v4(), Kind::Ping, 100).unwrap());
        assert!(!request.is_answered_by(&other, Kind::Ping));
        for at in [0, 1, 6, 7, 8, 15, 79] {
            let mut wrong = answer.clone();
            wrong[at] ^= 1;
            assert!(!request.is_answered_by(&wrong, Kind::Ping), "byte {at}");
        }
        for length in 0..answer.len() {
            assert!(!request.is_answered_by(&answer[..length], Kind::Ping));
        }
        assert!(!request.is_answered_by(&[&answer[..], &[0]].concat(), Kind::Ping));
        // The kernel changes a ping socket's identifier, and nobody that of a raw one.
        let mut renamed = answer.clone();
        renamed[4] ^= 1;
        assert!(request.is_answered_by(&renamed, Kind::Ping));
        let header = [&[0x46][..], &[0; 23]].concat();
        let whole = |message: &[u8]| [&header, message].concat();
        assert!(request.is_answered_by(&whole(&answer), Kind::Raw));
        assert!(!request.is_answered_by(&whole(&renamed), Kind::Raw));
        for length in 0..24 {
            assert!(!request.is_answered_by(&whole(&answer)[..length], Kind::Raw));
        }
    }
}
