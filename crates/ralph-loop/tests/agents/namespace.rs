//! A network of nothing but the loopback interface, where the machine allows it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use nix::unistd::{getgid, getuid};

/// Moves this process, and all it starts from now on, into a network of its own.
///
/// It must be called before there is a second thread.
pub(crate) fn enter() -> Result<()> {
    // A user may have a network of his own only inside of a user namespace of his own.
    if unshare(CloneFlags::CLONE_NEWNET).is_err() {
        let (user, group) = (getuid(), getgid());
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).context("no namespace may be made")?;
        write("setgroups", "deny")?;
        write("uid_map", &format!("{user} {user} 1"))?;
        write("gid_map", &format!("{group} {group} 1"))?;
    }
    bring_up_loopback().context("the loopback interface does not come up")?;
    try_loopback().context("the loopback interface does not work")
}

fn write(file: &str, text: &str) -> Result<()> {
    std::fs::write(format!("/proc/self/{file}"), text).with_context(|| format!("{file} cannot be written"))
}

/// Asks the kernel, as `ip link set lo up` would.
fn bring_up_loopback() -> Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST: u16 = 1;
    const NLM_F_ACK: u16 = 4;
    const NLMSG_ERROR: u16 = 2;
    const IFF_UP: u32 = 1;
    /// Of the loopback interface in every new network.
    const INDEX: i32 = 1;

    let mut request = Vec::new();
    // struct nlmsghdr: length, type, flags, sequence number, port.
    request.extend(32u32.to_ne_bytes());
    request.extend(RTM_NEWLINK.to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    request.extend([0; 8]);
    // struct ifinfomsg: family and padding, type, index, flags, which flags are meant.
    request.extend([0; 4]);
    request.extend(INDEX.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());

    let netlink =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    sendto(netlink.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = [0; 1024];
    let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // The answer is a header again, and after it the negative error number.
    ensure!(length >= 20, "the kernel's answer is too short");
    ensure!(
        u16::from_ne_bytes([answer[4], answer[5]]) == NLMSG_ERROR,
        "the kernel's answer is no acknowledgement"
    );
    let error = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    ensure!(error == 0, "{}", Errno::from_raw(-error));
    Ok(())
}

fn try_loopback() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.write_all(b"x")?;
    far.read_exact(&mut [0])?;
    Ok(())
}
