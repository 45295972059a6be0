//! Locks of lockproxy: copy this file into your program. It needs no crate, since a lock has a
//! connection of its own; next to redis or fred use it as it is.
//!
//! ```ignore
//! use lockproxy::{lock, Options};
//!
//! let waits = Options { wait: Some(5.0), ..Options::default() };
//! let held = lock("127.0.0.1:6380", "report", &waits)?;
//! held.fence(&["SET", "report:state", "done"])?; // refused if the lock was lost
//! held.check()?;                                 // an error if the lock was lost
//! held.close()?;
//! ```
//!
//! The lock lasts until close(), until it is dropped, which a panic does too, or until the program
//! dies. Its calls block: in tokio use it within spawn_blocking. once() makes a value once for all
//! who ask for it.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const AWAY_WITHIN: Duration = Duration::from_secs(30); // who is being restarted is back by then
const PING_EVERY: Duration = Duration::from_secs(1); // balancers cut what is idle

#[derive(Debug)]
pub enum Error {
    /// Another client holds the lock, or still held it when the wait ended.
    NotAcquired(String),
    /// The lock was lost while it was in use: another client can hold it.
    Lost(String),
    /// An error reply.
    Redis(String),
    /// There was no connection, or it closed before the lock was given.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotAcquired(key) => write!(f, "another client holds the lock {:?}", key),
            Error::Lost(key) => write!(f, "the lock {:?} was lost", key),
            Error::Redis(text) => f.write_str(text),
            Error::Io(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Error::Io(e)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Null,
    Int(i64),
    Status(String),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
    Error(String),
}

/// What LOCK is asked for. Times are in seconds.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a crashed proxy can leave the lock behind.
    pub timeout: f64,
    /// 0 waits forever. Without it a held lock is refused at once.
    pub wait: Option<f64>,
    /// How long the lock is held at most, also if the work hangs.
    pub max: Option<f64>,
    /// For once: how long the value is stored; without it until it is deleted.
    pub ttl: Option<f64>,
    /// For once: so long before it expires one client makes it again.
    pub early: Option<f64>,
    /// Who holds the lock, for people; without it the program, its host and its process.
    pub owner: Option<String>,
    /// A password, or a user and a password.
    pub auth: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        let none = None;
        Options { timeout: 10.0, wait: none, max: none, ttl: none, early: none, owner: None,
            auth: Vec::new() }
    }
}

/// A lock that is held, or the right to make a value.
pub struct Lock {
    /// Rises with every acquisition: it fences other databases too.
    pub token: i64,
    key: String,
    frees: &'static str, // what it ends with if it is only dropped
    session: Arc<Session>,
    threads: Vec<JoinHandle<()>>,
    open: bool,
}

/// Takes a lock.
pub fn lock(to: impl ToSocketAddrs, key: &str, options: &Options) -> Result<Lock, Error> {
    match Lock::ask(to, key, options, "UNLOCK", &["LOCK", key, &options.timeout.to_string()])? {
        (held, Reply::Int(_)) => Ok(held),
        _ => Err(Error::NotAcquired(key.to_string())),
    }
}

/// Returns the value of key. If there is none, one client makes it, and all have it.
///
/// It has a connection of its own: ask your client library for the value first. If make fails or
/// panics, the claim is given up. Clients that ask meanwhile wait for the value, as long as options
/// say; then it is NotAcquired. If the claim is lost nothing is stored, and the error is Lost.
pub fn once<V: AsRef<[u8]>, E: From<Error>>(
    to: impl ToSocketAddrs, key: &str, options: &Options,
    make: impl FnOnce(&Lock) -> Result<V, E>,
) -> Result<Vec<u8>, E> {
    let (timeout, early) = (options.timeout.to_string(), options.early.unwrap_or(0.0).to_string());
    let mut words = vec!["ONCE", key, &timeout];
    if options.early.is_some() {
        words.extend(["EARLY", &early]);
    }
    let mut claim = match Lock::ask(to, key, options, "DONE", &words)? {
        (claim, Reply::Int(_)) => claim,
        (_, Reply::Bulk(value)) => return Ok(value),
        _ => return Err(Error::NotAcquired(key.to_string()).into()),
    };
    let value = make(&claim)?.as_ref().to_vec();
    let (token, ttl) = (claim.token.to_string(), options.ttl.map(|s| (s * 1000.0).round() as i64));
    let mut words = vec![b"DONE".to_vec(), key.into(), token.into(), value.clone()];
    if let Some(ms) = ttl {
        words.extend([b"PX".to_vec(), ms.to_string().into()]);
    }
    claim.finish(&words)?;
    Ok(value)
}

impl Lock {
    /// Asks by a new connection. If the proxy is restarted or replaced meanwhile, it asks again for
    /// the rest of the wait, by the same owner. A command whose wait was ended has had no effect; a
    /// lock whose connection is lost is released, or given to its owner again.
    fn ask(
        to: impl ToSocketAddrs, key: &str, options: &Options, frees: &'static str, words: &[&str],
    ) -> Result<(Lock, Reply), Error> {
        let mut options = options.clone();
        options.owner.get_or_insert_with(my_name);
        let (wait, began) = (options.wait, Instant::now());
        let ends = match wait {
            Some(wait) if wait > 0.0 => Some(began + Duration::from_secs_f64(wait.min(1e9))),
            _ => None,
        };
        let mut away = began;
        loop {
            let mut asked = None;
            let connected = TcpStream::connect(&to).map_err(Error::Io);
            let failed = match connected.and_then(|stream| {
                asked = Some(Instant::now());
                Lock::ask_once(stream, key, &options, frees, words)
            }) {
                Err(Error::Redis(e)) if e.starts_with("ERR unknown command") => {
                    return Err(Error::Redis("this is a Redis, not lockproxy: connect to \
                        lockproxy's port, 6380 by default".to_string()));
                }
                Err(Error::Redis(e)) if e.starts_with("TRYAGAIN") => Error::Redis(e),
                Err(Error::Io(e)) => Error::Io(e),
                answered => return answered,
            };
            let now = Instant::now();
            if matches!(asked, Some(asked) if now - asked > ANSWER_WITHIN) {
                away = now; // it has been there meanwhile
            }
            let until = ends.map_or(away + AWAY_WITHIN, |ends| ends.min(away + AWAY_WITHIN));
            if wait.is_none() || now >= until {
                return Err(failed);
            }
            let pause = Duration::from_millis(50 + random() % 450); // not all who wait at once
            thread::sleep(pause.min(until - now));
            if let Some(ends) = ends {
                let rest = ends.saturating_duration_since(Instant::now()).as_millis().max(1);
                options.wait = Some(rest as f64 / 1000.0);
            }
        }
    }

    /// Sends LOCK or ONCE. Unless the reply is a token, the connection is closed.
    fn ask_once(
        stream: TcpStream, key: &str, options: &Options, frees: &'static str, words: &[&str],
    ) -> Result<(Lock, Reply), Error> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        let from = stream.try_clone()?;
        let state = State { owed: VecDeque::new(), heard: Instant::now(), most: None,
            ended: false, closing: false, lost: false };
        let session = Arc::new(Session { key: key.to_string(), stream, state: Mutex::new(state),
            changed: Condvar::new() });
        let (reader, pinger) = (session.clone(), session.clone());
        let threads = vec![
            thread::spawn(move || reader.read(BufReader::new(from))), // both end with the session
            thread::spawn(move || pinger.ping()),
        ];
        let key = key.to_string();
        let mut held = Lock { token: 0, key, frees, session, threads, open: false };
        if !options.auth.is_empty() {
            let mut auth = vec!["AUTH"];
            auth.extend(options.auth.iter().map(String::as_str));
            held.first(Some(ANSWER_WITHIN), &auth)?;
        }
        let owner = options.owner.clone().unwrap_or_default();
        let seconds = |s: Option<f64>| s.map(|s| s.to_string());
        let (max, wait) = (seconds(options.max), seconds(options.wait));
        let mut words = words.to_vec();
        words.push("SESSION");
        if let Some(seconds) = &max {
            words.extend(["MAX", seconds]);
        }
        if let Some(seconds) = &wait {
            words.extend(["WAIT", seconds]);
        }
        words.extend(["OWNER", &owner]);
        let within = match options.wait {
            Some(wait) if wait <= 0.0 => None,
            wait => Some(ANSWER_WITHIN + Duration::from_secs_f64(wait.unwrap_or(0.0).min(1e9))),
        };
        let reply = held.first(within, &words)?;
        if let Reply::Int(token) = reply {
            (held.token, held.open) = (token, true);
            let mut state = held.session.state.lock().unwrap();
            let timeout = Duration::from_secs_f64(options.timeout);
            (state.heard, state.most) = (Instant::now(), Some(timeout.max(ANSWER_WITHIN)));
        }
        Ok((held, reply))
    }

    /// Asks before there is a lock that could be lost.
    fn first(&self, within: Option<Duration>, words: &[&str]) -> Result<Reply, Error> {
        self.session.call(within, words).map_err(|e| match e {
            Error::Lost(_) => io::Error::new(io::ErrorKind::UnexpectedEof,
                "lockproxy has closed the connection, or does not answer").into(),
            e => e,
        })
    }

    /// Whether the lock was lost.
    pub fn lost(&self) -> bool {
        self.session.state.lock().unwrap().lost
    }

    /// An error if the lock was lost.
    pub fn check(&self) -> Result<(), Error> {
        if self.lost() { Err(Error::Lost(self.key.clone())) } else { Ok(()) }
    }

    /// Waits until the lock is lost, for so long at most: for a thread that ends the work then.
    pub fn wait_lost(&self, within: Duration) -> bool {
        let state = self.session.state.lock().unwrap();
        self.session.changed.wait_timeout_while(state, within, |s| !s.lost).unwrap().0.lost
    }

    /// Runs a command in Redis only if the lock is still held.
    pub fn fence(&self, command: &[impl AsRef<[u8]>]) -> Result<Reply, Error> {
        let token = self.token.to_string();
        let mut words = vec![b"FENCE".as_slice(), self.key.as_bytes(), token.as_bytes()];
        words.extend(command.iter().map(AsRef::as_ref));
        match self.session.call(Some(ANSWER_WITHIN), &words) {
            Err(Error::Redis(e)) if e.starts_with("FENCED") => Err(Error::Lost(self.key.clone())),
            reply => reply,
        }
    }

    /// Releases the lock. The error is Lost if it was not held until now.
    pub fn close(mut self) -> Result<(), Error> {
        let token = self.token.to_string();
        self.finish(&["UNLOCK".as_bytes(), self.key.clone().as_bytes(), token.as_bytes()])
    }

    fn finish(&mut self, words: &[impl AsRef<[u8]>]) -> Result<(), Error> {
        self.open = false;
        match self.session.call(Some(ANSWER_WITHIN), words)? {
            Reply::Int(1) => Ok(()),
            _ => Err(Error::Lost(self.key.clone())),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.open {
            let token = self.token.to_string();
            let words = [self.frees.to_string(), self.key.clone(), token];
            let _ = self.finish(&words); // closing the connection frees it too
        }
        self.session.state.lock().unwrap().closing = true;
        self.session.changed.notify_all();
        let _ = self.session.stream.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Says which program this is; the random part is this lock's, since owners share theirs.
fn my_name() -> String {
    let path = std::env::args().next().unwrap_or_default();
    let program = path.rsplit(['/', '\\']).next().unwrap_or("rust").to_string();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::env::var("HOSTNAME"))
        .or_else(|_| std::env::var("COMPUTERNAME"))
        .unwrap_or_default();
    format!("{}@{}:{}:{:x}", program, host.trim(), std::process::id(), random())
}

fn random() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let here = &now as *const _ as u64; // differs by thread, and as the system places stacks
    now.as_nanos() as u64 ^ here.rotate_left(32)
}

/// The connection of a lock.
struct Session {
    key: String,
    stream: TcpStream,
    state: Mutex<State>,
    changed: Condvar, // it has ended, or is closing
}

struct State {
    owed: VecDeque<Sender<Reply>>, // in order
    heard: Instant,
    most: Option<Duration>, // without an answer; then the lock is lost. None while LOCK waits
    ended: bool,
    closing: bool,
    lost: bool,
}

impl Session {
    /// Sends a command and waits for its reply.
    fn call(&self, within: Option<Duration>, words: &[impl AsRef<[u8]>]) -> Result<Reply, Error> {
        let reply = self.send(words);
        let reply = match within {
            Some(within) => reply.recv_timeout(within),
            None => reply.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match reply {
            Ok(Reply::Error(text)) => Err(Error::Redis(text)),
            Ok(reply) => Ok(reply),
            Err(_) => {
                let _ = self.stream.shutdown(Shutdown::Both); // nothing comes
                Err(Error::Lost(self.key.clone()))
            }
        }
    }

    /// Sends a command. If the connection closes before its reply, there is none.
    fn send(&self, words: &[impl AsRef<[u8]>]) -> Receiver<Reply> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            request.extend(format!("${}\r\n", word.len()).bytes());
            request.extend(word);
            request.extend(b"\r\n");
        }
        let (owed, reply) = channel();
        let mut state = self.state.lock().unwrap();
        if !state.ended {
            state.owed.push_back(owed);
            if (&self.stream).write_all(&request).is_err() {
                let _ = self.stream.shutdown(Shutdown::Both);
            }
        }
        reply
    }

    /// Reads replies until the connection closes: if not by this side, the lock is lost.
    fn read(&self, mut from: BufReader<TcpStream>) {
        while let Ok(reply) = read_reply(&mut from) {
            let mut state = self.state.lock().unwrap();
            state.heard = Instant::now();
            if let Some(owed) = state.owed.pop_front() {
                let _ = owed.send(reply); // nobody waits for that of a ping
            }
        }
        let _ = self.stream.shutdown(Shutdown::Both);
        let mut state = self.state.lock().unwrap();
        (state.ended, state.lost) = (true, !state.closing);
        state.owed.clear();
        self.changed.notify_all();
    }

    /// Pings, also while LOCK waits. After a time without an answer the lock may be lost.
    fn ping(&self) {
        let began = Instant::now();
        let mut state = self.state.lock().unwrap();
        loop {
            // The proxy keeps the pings of a long wait.
            let every = match state.most {
                Some(_) => PING_EVERY,
                None => (began.elapsed() / 60).clamp(PING_EVERY, 15 * PING_EVERY),
            };
            let goes_on = |s: &mut State| !s.ended && !s.closing;
            state = self.changed.wait_timeout_while(state, every, goes_on).unwrap().0;
            if state.ended || state.closing {
                return;
            }
            if matches!(state.most, Some(most) if state.heard.elapsed() > most + every) {
                let _ = self.stream.shutdown(Shutdown::Both);
            }
            drop(state);
            self.send(&["PING"]);
            state = self.state.lock().unwrap();
        }
    }
}

fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    let line = String::from_utf8_lossy(&line);
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "unexpected reply");
    let text = line.strip_suffix("\r\n").ok_or_else(malformed)?;
    let kind = text.chars().next().ok_or_else(malformed)?;
    let rest = text.get(1..).ok_or_else(malformed)?;
    let number = || rest.parse::<i64>().map_err(|_| malformed());
    Ok(match kind {
        '+' => Reply::Status(rest.to_string()),
        '-' => Reply::Error(rest.to_string()),
        ':' => Reply::Int(number()?),
        '$' | '*' if number()? < 0 => Reply::Null,
        '$' => {
            let mut bytes = vec![0; number()? as usize + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Reply::Bulk(bytes)
        }
        '*' => Reply::Array((0..number()?).map(|_| read_reply(from)).collect::<io::Result<_>>()?),
        _ => return Err(malformed()),
    })
}
