//! One program, from its first word to the last.

use super::cache::{memfd, seal};
use super::peer::Peer;
use super::{Agent, Injected, Planned, Program};
use crate::capture::What;
use crate::clock::Clock;
use crate::host::{Given, Host, Witness};
use crate::install::{Area, Layout, RINGS_NAME, Report, Resting, check_pages};
use crate::{Error, TrampolineCapture};
use address::Bias;
use handover::{FromAgent, FromProgram, Hello, MAX_PACKET, Offer, Span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{SealFlags, ftruncate};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What came of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The program has its code.
    Injected,
    /// It was to get none.
    Declined,
    /// It was to get some, and has none.
    Failed,
    /// It said nothing, or nonsense, or hung up.
    Nonsense,
}

/// A socket on which nobody waits for longer than until a moment.
pub(super) struct Line {
    pub(super) socket: OwnedFd,
    pub(super) deadline: Instant,
}

/// How something ends that cannot go on, and the reason if somebody is to be told.
type Broken = (End, Option<String>);

const NONSENSE: Broken = (End::Nonsense, None);

impl Line {
    fn wait(&self, flags: PollFlags) -> Option<()> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let mut fds = [PollFd::new(&self.socket, flags)];
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) => return None,
                Ok(_) => return Some(()),
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// One packet, and one descriptor if one came along: the kernel closes what there is no room for.
    fn receive(&self, buffer: &mut [u8]) -> Option<(usize, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        self.wait(PollFlags::IN)?;
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(&self.socket, &mut parts, &mut control, flags).ok()?;
        let mut fds = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        // The others are closed by being dropped.
        let fd = fds.by_ref().flatten().next();
        fds.flatten().for_each(drop);
        // A packet that was cut is longer than any there is.
        (received.bytes > 0 && received.flags.bits() & CUT == 0).then_some((received.bytes, fd))
    }

    fn send(&self, message: FromAgent, fds: &[BorrowedFd<'_>]) -> Option<()> {
        let mut buffer = [0; 256];
        let len = message.write(&mut buffer)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return None;
        }
        self.wait(PollFlags::OUT)?;
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let parts = [IoSlice::new(buffer.get(..len)?)];
        sendmsg(&self.socket, &parts, &mut control, flags).ok().map(drop)
    }
}

/// MSG_TRUNC: the packet was longer than the buffer.
const CUT: u32 = 0x20;

/// What is ready for a program that has said hello.
struct Handover {
    planned: Arc<Planned>,
    bias: Bias,
    layout: Layout,
    image: Arc<super::cache::Image>,
    /// To be sent; the description that the lock hangs on is another one, which only we have.
    rings: File,
    area: Area,
}

/// Speaks with a program that has connected.
pub(super) fn speak(line: &Line, agent: &dyn Agent, clock: &Clock, peer: Peer) -> End {
    match converse(line, agent, clock, peer) {
        Ok(()) => End::Injected,
        Err((end, _)) => {
            // It may be waiting.
            let _ = line.send(FromAgent::Decline, &[]);
            end
        }
    }
}

fn converse(line: &Line, agent: &dyn Agent, clock: &Clock, peer: Peer) -> Result<(), Broken> {
    let mut buffer = [0; MAX_PACKET];
    let (len, executable) = line.receive(&mut buffer).ok_or(NONSENSE)?;
    let packet = buffer.get(..len).unwrap_or_default();
    let Some(FromProgram::Hello(hello)) = FromProgram::read(packet) else { return Err(NONSENSE) };
    let program = peer.program(executable.ok_or(NONSENSE)?).map_err(|_| NONSENSE)?;
    let Some(planned) = agent.decide(&program) else { return Err((End::Declined, None)) };
    let result = prepare(&program, planned, &hello)
        .map_err(|error| (End::Failed, Some(error.to_string())))
        .and_then(|handover| hand_over(line, &program, handover, clock));
    match result {
        Ok((planned, capture)) => {
            agent.injected(Injected { program, planned, capture });
            Ok(())
        }
        Err((end, reason)) => {
            if let Some(reason) = &reason {
                agent.failed(&program, reason);
            }
            Err((end, reason))
        }
    }
}

fn prepare(program: &Program, planned: Arc<Planned>, hello: &Hello<'_>) -> Result<Handover, Error> {
    let pid = program.pid();
    let unsuitable = |reason: &str| Error::Unsuitable { pid, reason: reason.to_owned() };
    if !planned.is_for(program) {
        return Err(unsuitable("it runs another build than planned"));
    }
    let bias = Bias(hello.bias);
    let text = planned.text(bias);
    let said = Span { start: text.start.0, len: text.end.0.wrapping_sub(text.start.0) };
    if hello.text != said {
        return Err(unsuitable("its code is not where its file says"));
    }
    let (layout, image) = planned.place(pid, bias, hello.ranges())?;
    if image.patch_count == 0 {
        return Err(unsuitable("none of the functions can carry code"));
    }
    check_pages(pid, image.pages)?;
    let rings = memfd(RINGS_NAME, false)?;
    ftruncate(&rings, layout.rings_len()).map_err(|e| Error::io("make the rings", e))?;
    seal(&rings, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let path = format!("/proc/self/fd/{}", rings.as_raw_fd());
    let lock = OpenOptions::new().read(true).write(true).open(path);
    let lock = lock.map_err(|e| Error::io("make the rings", e))?;
    let area = Area::given(layout, image.code_len, lock)?;
    Ok(Handover { planned, bias, layout, image, rings, area })
}

fn hand_over(
    line: &Line,
    program: &Program,
    handover: Handover,
    clock: &Clock,
) -> Result<(Arc<Planned>, TrampolineCapture), Broken> {
    let Handover { planned, bias, layout, image, rings, area } = handover;
    let failed = |reason: &str| (End::Failed, Some(reason.to_owned()));
    let offer = Offer {
        bias: bias.0,
        control: layout.control.0,
        rings: Span { start: layout.rings.base.0, len: layout.rings_len() },
        code: Span { start: layout.code.0, len: image.code_len },
        patches: image.patch_count,
        hooks: u32::from(image.has_hook),
    };
    let fds = [image.code.as_fd(), rings.as_fd(), image.patches.as_fd()];
    let gone = || failed("it went away, or waited no longer");
    line.send(FromAgent::Offer(offer), &fds).ok_or_else(gone)?;
    // While the program writes its code.
    area.open_rings().map_err(|error| failed(&error.to_string()))?;
    let mut buffer = [0; 64];
    let (len, _) = line.receive(&mut buffer).ok_or_else(gone)?;
    let (patches, pages) = match FromProgram::read(buffer.get(..len).unwrap_or_default()) {
        Some(FromProgram::Done { patches, pages }) => (patches, pages),
        Some(FromProgram::Failed(reason)) => {
            let text = reason.why.text();
            return Err(match reason.errno {
                0 => failed(text),
                errno => {
                    let error = std::io::Error::from_raw_os_error(errno as i32);
                    failed(&format!("{text}: {error}"))
                }
            });
        }
        _ => return Err(failed("it says what makes no sense")),
    };
    let process =
        process::Process::open(program.pid()).map_err(|error| failed(&error.to_string()))?;
    let witness = Witness::of(program.pid());
    // Whoever holds the socket need not be who has connected, whose number may be somebody else's by now.
    let carries = area.is_mapped_by(&process);
    if carries == Some(false) || !program.process().is_alive() {
        return Err(failed("it has ended, or does not carry what was taken in its name"));
    }
    let report = Report {
        private_pages: pages as usize,
        patches: patches as usize,
        functions: image.functions,
        ..Report::default()
    };
    let resting = Resting::default();
    let host = Host::Given(Given { process, area, report, witness, resting });
    let what = What { plan: planned.plan(), sites: Arc::clone(&image.sites), bias };
    let capture = TrampolineCapture::given(host, clock.clone(), &image.refused, what);
    line.send(FromAgent::Go, &[]).ok_or_else(gone)?;
    Ok((planned, capture))
}

/// How long a conversation may last from here.
pub(super) fn deadline(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or(now)
}
