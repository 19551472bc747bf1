//! Packets of the handover, sent and received by hand.
#![allow(dead_code, reason = "each test binary uses its part")]

use crate::agent::Directory;
use handover::{FromAgent, MAX_PACKET};
use rustix::io::IoSliceMut;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

pub fn socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

pub fn listener(directory: &Directory) -> OwnedFd {
    let listener = socket();
    bind(&listener, &SocketAddrUnix::new(directory.socket()).unwrap()).unwrap();
    listen(&listener, 64).unwrap();
    listener
}

pub fn connected(path: &Path) -> OwnedFd {
    let socket = socket();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

pub fn receive(socket: &OwnedFd) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut buffer = vec![0; MAX_PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds = fds.flatten().collect();
    buffer.truncate(received.bytes);
    (buffer, fds)
}

pub fn send(socket: &OwnedFd, packet: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    // The other side may have hung up, which is an answer too.
    let _ = sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL);
}

pub fn say(socket: &OwnedFd, message: FromAgent, fds: &[BorrowedFd<'_>]) {
    let mut buffer = [0; 256];
    let len = message.write(&mut buffer).unwrap();
    send(socket, &buffer[..len], fds);
}

/// Has the program of `command` connect the socket, before it begins; both of us have that then.
pub fn connects_itself(command: &mut std::process::Command, socket: &OwnedFd, path: &Path) {
    use std::os::unix::process::CommandExt as _;
    let own = socket.try_clone().unwrap();
    let address = SocketAddrUnix::new(path).unwrap();
    let connects = move || connect(&own, &address).map_err(std::io::Error::from);
    // SAFETY: a system call, on what was made before.
    unsafe { command.pre_exec(connects) };
}

/// As another user from here on, this thread alone.
pub fn become_nobody() {
    const NOBODY: u32 = 65534;
    // SAFETY: numbers only; by the bare call, other threads stay who they are.
    let code = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    assert_eq!(code, 0, "setresuid needs root");
}
