//! Locks of lockproxy over the redis crate.
//!
//! ```no_run
//! use std::time::Duration;
//! use lockproxy::{Options, Wait};
//!
//! fn main() -> Result<(), lockproxy::Error> {
//!     let client = redis::Client::open("redis://127.0.0.1:6380")?;
//!     let options = Options { wait: Wait::For(Duration::from_secs(5)), ..Options::default() };
//!     let mut lock = lockproxy::lock(&client, "report", &options)?;
//!     lock.fence(redis::cmd("SET").arg("report:state").arg("done"))?; // refused if it was lost
//!     lock.check()?;                                                  // Lost if it was lost
//!     lock.release()
//! }
//! ```
//!
//! A lock has a connection of its own, made like those of the client, and no thread. It is held until
//! it is released or dropped, or until the program dies. A sync lock learns of its loss when it is
//! asked; [`aio`], with the feature `tokio`, tells at once.

#[cfg(feature = "tokio")]
pub mod aio;
mod request;

use std::fmt;
use std::time::{Duration, Instant};

use redis::{Client, Cmd, Connection, ConnectionLike, RedisError, Value};
use request::{millis, Request};

pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How long to wait for a lock that another client holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wait {
    /// Not at all.
    No,
    /// For so long at most.
    For(Duration),
    /// Until it is free.
    Forever,
}

/// What a lock is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a crashed proxy can leave the lock behind.
    pub timeout: Duration,
    /// How long to wait.
    pub wait: Wait,
    /// How long the lock is held at most, also if the work hangs; None is forever.
    pub max: Option<Duration>,
    /// For once: how long the value is stored; None is until it is deleted.
    pub ttl: Option<Duration>,
    /// For once: so long before the value expires one client makes it again, others get it.
    pub early: Option<Duration>,
    /// Who holds it, for people; None is the program, its host and its process.
    pub owner: Option<String>,
    /// For lock: why, for people, in at most 256 bytes.
    pub note: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            timeout: Duration::from_secs(10),
            wait: Wait::No,
            max: None,
            ttl: None,
            early: None,
            owner: None,
            note: None,
        }
    }
}

/// Why there is no lock, or none any more.
#[derive(Debug)]
pub enum Error {
    /// Another client holds the lock of this name, or still held it when the wait ended.
    NotAcquired(String),
    /// The lock of this name was lost while it was in use: another client can hold it.
    Lost(String),
    /// The server is a Redis without lockproxy.
    NotLockproxy,
    /// What the redis crate says.
    Redis(RedisError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotAcquired(key) => write!(f, "another client holds the lock {key:?}"),
            Error::Lost(key) => write!(f, "the lock {key:?} was lost"),
            Error::NotLockproxy => write!(
                f,
                "this is a Redis, not lockproxy: connect to lockproxy's port, 6380 by default"
            ),
            Error::Redis(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        Error::Redis(error)
    }
}

/// A lock that is held, or the right to make a value. Dropping it closes its connection, which frees
/// the lock, and waits for nothing.
pub struct Lock {
    /// Rises with every acquisition: it fences other databases too.
    pub token: i64,
    key: String,
    session: Session,
    lost: bool,
}

/// Takes a lock.
pub fn lock(client: &Client, key: &str, options: &Options) -> Result<Lock, Error> {
    match acquire(client, Request::lock(key, options))? {
        (session, Value::Int(token)) => Ok(Lock::new(token, key, session)),
        _ => Err(Error::NotAcquired(key.to_string())),
    }
}

/// Returns the value of key. If there is none, one client makes it, and all have it.
///
/// It is read by `connection` first; making it has a connection of its own. If make fails or panics,
/// the claim is given up. Clients that ask meanwhile wait for the value, as long as options say; then
/// it is NotAcquired. If the claim is lost nothing is stored, and the error is Lost.
pub fn once<V: AsRef<[u8]>, E: From<Error>>(
    connection: &mut impl ConnectionLike, client: &Client, key: &str, options: &Options,
    make: impl FnOnce(&mut Lock) -> Result<V, E>,
) -> Result<Vec<u8>, E> {
    let (there, lives) = request::read(key, options)
        .query::<(Option<Vec<u8>>, i64)>(connection)
        .map_err(Error::from)?;
    match there {
        Some(value) if !request::soon_gone(lives, options) => return Ok(value),
        _ => {}
    }
    let mut claim = match acquire(client, Request::once(key, options))? {
        (session, Value::Int(token)) => Lock::new(token, key, session),
        (_, Value::BulkString(value)) => return Ok(value),
        _ => return Err(Error::NotAcquired(key.to_string()).into()),
    };
    match make(&mut claim) {
        Ok(value) => {
            let value = value.as_ref().to_vec();
            claim.finish(&request::done(key, claim.token, &value, options))?;
            Ok(value)
        }
        Err(error) => {
            let _ = claim.finish(redis::cmd("DONE").arg(key).arg(claim.token)); // gives up
            Err(error)
        }
    }
}

fn acquire(client: &Client, mut request: Request) -> Result<(Session, Value), Error> {
    loop {
        let mut asked = None;
        let error = match Session::open(client) {
            Ok(mut session) => {
                asked = Some(Instant::now());
                match session.call(&request.cmd(), request.within()) {
                    Ok(reply) => return Ok((session, reply)),
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        std::thread::sleep(request.pause_after(error, asked)?);
    }
}

impl Lock {
    fn new(token: i64, key: &str, session: Session) -> Self {
        Lock { token, key: key.to_string(), session, lost: false }
    }

    /// Lost if the lock was lost. Call it between steps of the work, also so that balancers do not
    /// cut the connection, on which nothing else moves.
    pub fn check(&mut self) -> Result<(), Error> {
        self.call(&redis::cmd("PING")).map(|_| ())
    }

    /// Runs a command in Redis only if the lock is still held.
    pub fn fence(&mut self, command: &Cmd) -> Result<Value, Error> {
        let fenced = request::fence(&self.key, self.token, command);
        self.call(&fenced)
    }

    /// From now on a crashed proxy can leave the lock behind for so long.
    pub fn extend(&mut self, timeout: Duration) -> Result<(), Error> {
        let mut relock = redis::cmd("RELOCK");
        relock.arg(&self.key).arg(self.token).arg(millis(timeout));
        self.finish(&relock)
    }

    /// Releases the lock. The error is Lost if it was not held until now.
    pub fn release(mut self) -> Result<(), Error> {
        let mut unlock = redis::cmd("UNLOCK");
        unlock.arg(&self.key).arg(self.token);
        self.finish(&unlock)
    }

    fn finish(&mut self, command: &Cmd) -> Result<(), Error> {
        match self.call(command)? {
            Value::Int(1) => Ok(()),
            _ => Err(Error::Lost(self.key.clone())),
        }
    }

    /// The connection closes when the lock is lost, and is not used after an answer that is late.
    fn call(&mut self, command: &Cmd) -> Result<Value, Error> {
        if self.lost {
            return Err(Error::Lost(self.key.clone()));
        }
        match self.session.call(command, Some(ANSWER_WITHIN)) {
            Err(error) if error.code() == Some("FENCED") => Err(Error::Lost(self.key.clone())),
            Err(error) if error.is_io_error() => {
                self.lost = true;
                Err(Error::Lost(self.key.clone()))
            }
            Err(error) => Err(error.into()),
            Ok(reply) => Ok(reply),
        }
    }
}

/// The connection of a lock.
struct Session(Connection);

impl Session {
    fn open(client: &Client) -> Result<Session, RedisError> {
        let connection = client.get_connection_with_timeout(ANSWER_WITHIN)?;
        connection.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(Session(connection))
    }

    /// Sends a command and waits for its reply. None is forever.
    fn call(&mut self, command: &Cmd, within: Option<Duration>) -> Result<Value, RedisError> {
        self.0.set_read_timeout(within)?;
        self.0.send_packed_command(&command.get_packed_command())?;
        loop {
            match self.0.recv_response()? {
                Value::Push { .. } => {}
                Value::ServerError(error) => return Err(error.into()),
                reply => return Ok(reply),
            }
        }
    }
}
