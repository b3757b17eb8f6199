//! A mail server on the loopback interface, which a test lets accept, refuse, hang and break off.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// What the server does with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Accept,
    /// Answers the command that begins with this by this reply.
    Reply(&'static str, &'static str),
    /// Says nothing for a while.
    Hang,
    /// Takes the letter, and breaks off before it says so.
    DieAfterData,
}

/// A letter that was read whole.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    /// The commands before it.
    pub(crate) commands: Vec<String>,
    pub(crate) text: String,
}

impl Letter {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (head, _) = self.text.split_once("\r\n\r\n")?;
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

pub(crate) struct MailServer {
    pub(crate) port: u16,
    letters: Arc<Mutex<Vec<Letter>>>,
}

/// How long a connection without a reply stays open.
const HANG: Duration = Duration::from_secs(2);

impl MailServer {
    /// `manner` decides by the number of the connection, from 0.
    pub(crate) fn start(manner: impl Fn(usize) -> Manner + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let letters = Arc::<Mutex<Vec<Letter>>>::default();
        let taken = Arc::clone(&letters);
        thread::spawn(move || {
            for (n, stream) in listener.incoming().flatten().enumerate() {
                let (taken, manner) = (Arc::clone(&taken), manner(n));
                thread::spawn(move || serve(stream, manner, &taken));
            }
        });
        Self { port, letters }
    }

    /// All letters that came so far.
    pub(crate) fn letters(&self) -> Vec<Letter> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Speaks SMTP until the client goes.
fn serve(stream: TcpStream, manner: Manner, letters: &Mutex<Vec<Letter>>) -> Option<()> {
    if manner == Manner::Hang {
        thread::sleep(HANG);
        return None;
    }
    let mut reader = BufReader::new(stream);
    let mut commands = Vec::new();
    say(reader.get_mut(), "220 test ESMTP")?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        let reply = match manner {
            Manner::Reply(command, reply) if line.starts_with(command) => reply,
            Manner::Accept | Manner::Reply(..) | Manner::Hang | Manner::DieAfterData => {
                match line.split([' ', ':']).next().unwrap_or_default() {
                    "EHLO" => "250-test\r\n250-AUTH PLAIN LOGIN\r\n250 8BITMIME",
                    "AUTH" => "235 welcome",
                    "DATA" => "354 go on",
                    "QUIT" => "221 bye",
                    _ => "250 fine",
                }
            }
        };
        say(reader.get_mut(), reply)?;
        commands.push(line);
        if reply.starts_with("354") {
            let text = read_letter(&mut reader)?;
            let letter = Letter { commands: commands.clone(), text };
            letters.lock().unwrap_or_else(PoisonError::into_inner).push(letter);
            if manner == Manner::DieAfterData {
                return None;
            }
            say(reader.get_mut(), "250 queued")?;
        }
    }
}

/// Writes a reply at once: in pieces it would wait for acknowledgements.
fn say(stream: &mut TcpStream, reply: &str) -> Option<()> {
    stream.write_all(format!("{reply}\r\n").as_bytes()).ok()
}

fn read_letter(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut text = String::new();
    loop {
        let start = text.len();
        if reader.read_line(&mut text).ok()? == 0 {
            return None;
        }
        if &text[start..] == ".\r\n" {
            text.truncate(start);
            return Some(text);
        }
    }
}
