//! The branch's socket inside, `/run/forkpoint/sock`: one JSON object a line in, one out. It says
//! which branch this is, and refuses everything else. It takes no descriptors: whoever could pass
//! one in could hand a branch's file to another branch.

use forkpoint_model::BranchId;
use forkpoint_sys::scm;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    send, socket_with,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Where it is.
pub const PATH: &str = "/run/forkpoint/sock";

/// The most connections at a time, and the longest line.
const MAX_CLIENTS: usize = 16;
const MAX_LINE: usize = 4096;

/// The socket and those connected to it.
#[derive(Debug)]
pub struct BranchSocket {
    branch: BranchId,
    /// Readable when someone connects.
    pub listener: OwnedFd,
    /// Readable when one speaks.
    pub clients: Vec<Client>,
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    /// The connection.
    pub socket: OwnedFd,
    line: Vec<u8>,
}

impl BranchSocket {
    /// Binds it, in init's new root.
    pub fn bind(branch: BranchId) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&listener, &SocketAddrUnix::new(PATH)?)?;
        rustix::fs::chmod(PATH, rustix::fs::Mode::from_raw_mode(0o666))?;
        scm::refuse_descriptors(listener.as_fd())?;
        listen(&listener, MAX_CLIENTS as i32)?;
        Ok(Self {
            branch,
            listener,
            clients: Vec::new(),
        })
    }

    /// Takes a new connection; one too many replaces the oldest.
    pub fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // A connection that went away meanwhile is nobody's loss.
        let Ok(socket) = accept_with(&self.listener, flags) else {
            return;
        };
        if scm::refuse_descriptors(socket.as_fd()).is_err() {
            return;
        }
        if self.clients.len() >= MAX_CLIENTS {
            self.clients.remove(0);
        }
        let line = Vec::new();
        self.clients.push(Client { socket, line });
    }

    /// Serves client `index` what has arrived. `false`: it is to be dropped.
    pub fn serve(&mut self, index: usize) -> bool {
        let Some(client) = self.clients.get_mut(index) else {
            return false;
        };
        let mut buffer = [0u8; 1024];
        match scm::receive_bytes(client.socket.as_fd(), &mut buffer) {
            Ok(0) => return false,
            Ok(len) => client.line.extend_from_slice(&buffer[..len]),
            Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
        }
        while let Some(end) = client.line.iter().position(|&b| b == b'\n') {
            let rest = client.line.split_off(end + 1);
            let line = std::mem::replace(&mut client.line, rest);
            let answer = answer(self.branch, &line);
            let sent = send(&client.socket, answer.as_bytes(), SendFlags::NOSIGNAL);
            if sent != Ok(answer.len()) {
                return false;
            }
        }
        client.line.len() <= MAX_LINE
    }
}

fn answer(branch: BranchId, line: &[u8]) -> String {
    match operation(line).as_deref() {
        Some("info") => format!("{{\"branch\":\"{branch}\"}}\n"),
        Some(_) => refusal("a branch can ask for \\\"info\\\" only"),
        None => refusal("not a JSON object with an \\\"op\\\""),
    }
}

fn refusal(message: &str) -> String {
    format!(
        "{{\"error\":{{\"code\":\"{}\",\"message\":\"{message}\"}}}}\n",
        crate::codes::PROTOCOL.text
    )
}

/// The value of `op` in an object of plain texts, such as `{"op": "info"}`. Anything richer is not
/// spoken here, so a whole parser is not needed.
fn operation(line: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(line).ok()?.trim();
    let inside = text.strip_prefix('{')?.strip_suffix('}')?;
    let mut found = None;
    for pair in inside.split(',') {
        let (key, value) = pair.split_once(':')?;
        let value = plain(value)?;
        if plain(key)? == "op" {
            found = Some(value.to_owned());
        }
    }
    found
}

fn plain(text: &str) -> Option<&str> {
    let inside = text.trim().strip_prefix('"')?.strip_suffix('"')?;
    (!inside.contains(['"', '\\'])).then_some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_info_is_answered() {
        let branch = BranchId::from_bits(5);
        let ok = format!("{{\"branch\":\"{branch}\"}}\n");
        assert_eq!(answer(branch, b"{\"op\":\"info\"}\n"), ok);
        assert_eq!(
            answer(branch, b" { \"v\" : \"1\" , \"op\" : \"info\" } \n"),
            ok
        );
        for bad in [
            "",
            "{}",
            "info",
            "{\"op\":\"kill\"}",
            "{\"op\":info}",
            "{\"op\":\"in\\u0066o\"}",
        ] {
            assert!(
                answer(branch, bad.as_bytes()).contains("\"error\""),
                "{bad}"
            );
        }
    }
}
