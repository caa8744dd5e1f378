//! What the runner tells a shim and what the shim tells back, on the socket between them.
//!
//! Called by the keeper and the shim; both are the same binary, so the format needs no version. The runner sends
//! the command's four descriptors and the attempt's record with one byte, then one length-prefixed [`Order`],
//! then at most one [`STOP`]. The shim answers with [`Report`]s, one JSON line each. It never carries the command's data.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IoSlice, IoSliceMut, Read},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// The largest order, in bytes. Arguments and environment are at most 1 MiB, and JSON makes a byte that is not
/// UTF-8 up to four.
const ORDER_MAX: u32 = 8 << 20;

/// The order to end the tree.
pub(super) const STOP: u8 = b'S';

/// What to run. `streams` go beside it.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) program: Text,
    pub(super) argv: Vec<Text>,
    pub(super) cwd: Text,
    pub(super) env: Vec<(Text, Text)>,
    pub(super) grace_ms: u64,
    pub(super) memory_max: Option<u64>,
    pub(super) nice: u8,
}

/// Text of the operating system, which need not be UTF-8.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Text {
    Utf8(String),
    Bytes(Vec<u8>),
}

impl From<&OsStr> for Text {
    fn from(text: &OsStr) -> Text {
        match text.to_str() {
            Some(text) => Text::Utf8(text.to_owned()),
            None => Text::Bytes(text.as_bytes().to_vec()),
        }
    }
}

impl From<Text> for OsString {
    fn from(text: Text) -> OsString {
        match text {
            Text::Utf8(text) => text.into(),
            Text::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

/// The command's ends of its pipes, and the attempt's record, which stays with the shim.
pub(super) struct Streams {
    pub(super) descriptor: OwnedFd,
    pub(super) input: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
    pub(super) record: OwnedFd,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The command runs.
    Started { pid: i32 },
    /// The system refused to execute it, with this error number.
    Refused { errno: i32 },
    /// What is left of it, while it is being ended.
    Left(super::Left),
    /// It has ended, and so has its tree, unless `confirmed` is false.
    Ended {
        why: Why,
        exit: Option<Exit>,
        leaked: u32,
        confirmed: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Why {
    Exited,
    Ordered,
    OutOfMemory,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Exit {
    Code(i32),
    Signal(i32),
}

impl From<Exit> for super::Exit {
    fn from(exit: Exit) -> super::Exit {
        match exit {
            Exit::Code(code) => super::Exit::Code(code),
            Exit::Signal(signal) => super::Exit::Signal(signal),
        }
    }
}

/// Sends the descriptors. The first one gets the lowest free number in the shim, which is 3: some shells can only
/// redirect to a descriptor of one digit.
pub(super) fn send_streams(socket: impl AsFd, streams: &Streams) -> io::Result<()> {
    let descriptors = [
        &streams.descriptor,
        &streams.input,
        &streams.output,
        &streams.errors,
        &streams.record,
    ]
    .map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(b"F")], &mut control, SendFlags::empty())?;
    Ok(())
}

pub(super) fn receive_streams(socket: BorrowedFd<'_>) -> io::Result<Streams> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        receive_flags(),
    )?;
    let mut received = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            received.extend(descriptors);
        }
    }
    let mut received = received.into_iter();
    let mut next = || {
        received
            .next()
            .ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))
    };
    Ok(Streams {
        descriptor: next()?,
        input: next()?,
        output: next()?,
        errors: next()?,
        record: next()?,
    })
}

#[cfg(target_os = "linux")]
fn receive_flags() -> RecvFlags {
    RecvFlags::CMSG_CLOEXEC
}

/// Without the flag the shim's copies stay open in the command; it is single-threaded and gives them away anyway.
#[cfg(not(target_os = "linux"))]
fn receive_flags() -> RecvFlags {
    RecvFlags::empty()
}

/// The bytes of an order, with their length before them.
pub(super) fn encode(order: &Order) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(order)?;
    let length = u32::try_from(json.len())
        .ok()
        .filter(|length| *length <= ORDER_MAX);
    let length = length.ok_or(io::Error::from(io::ErrorKind::ArgumentListTooLong))?;
    Ok([&length.to_be_bytes()[..], &json].concat())
}

pub(super) fn receive(mut socket: impl Read) -> io::Result<Order> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > ORDER_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut json = vec![0; length as usize];
    socket.read_exact(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}
