//! The same for tokio.
//!
//! ```no_run
//! # async fn run() -> Result<(), lockproxy::Error> {
//! let client = redis::Client::open("redis://127.0.0.1:6380")?;
//! let options = lockproxy::Options { wait: lockproxy::Wait::Forever, ..Default::default() };
//! lockproxy::aio::with_lock(&client, "report", &options, |held| async move {
//!     held.fence(redis::cmd("SET").arg("report:state").arg("done")).await?;
//!     Ok::<_, lockproxy::Error>(()) // dropped at its next await if the lock is lost
//! }).await
//! # }
//! ```
//!
//! Dropping the future ends a wait. A lock has a connection of its own, in RESP3, and a task.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, ProtocolVersion, PushInfo, PushKind, RedisError,
    Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::request::{self, millis, server_error, Request};
use crate::{Error, Options, ANSWER_WITHIN};

const PING_EVERY: Duration = Duration::from_secs(1); // balancers cut what is idle

/// A lock that is held, or the right to make a value. When the last clone is dropped its connection
/// is closed, which frees the lock.
#[derive(Clone)]
pub struct Held {
    /// Rises with every acquisition: it fences other databases too.
    pub token: i64,
    key: Arc<str>,
    session: Arc<Session>,
}

/// Takes a lock.
pub async fn lock(client: &Client, key: &str, options: &Options) -> Result<Held, Error> {
    match acquire(client, Request::lock(key, options), options).await? {
        (session, Value::Int(token)) => Ok(Held::new(token, key, session)),
        _ => Err(Error::NotAcquired(key.to_string())),
    }
}

/// Runs work under a lock. It is dropped at its next await if the lock is lost; the error is Lost.
pub async fn with_lock<T, E, F>(
    client: &Client, key: &str, options: &Options, work: impl FnOnce(Held) -> F,
) -> Result<T, E>
where
    E: From<Error>,
    F: Future<Output = Result<T, E>>,
{
    let held = lock(client, key, options).await?;
    let result = tokio::select! {
        biased;
        result = work(held.clone()) => result,
        _ = held.lost() => Err(Error::Lost(key.to_string()).into()),
    };
    let released = held.release().await;
    let result = result?;
    released?;
    Ok(result)
}

/// Returns the value of key. If there is none, one client makes it, and all have it.
///
/// It is read by `connection` first; making it has a connection of its own. If make fails, the claim
/// is given up. Clients that ask meanwhile wait for the value, as long as options say; then it is
/// NotAcquired. If the claim is lost make is dropped, nothing is stored, and the error is Lost.
pub async fn once<V, E, F>(
    connection: &mut impl ConnectionLike, client: &Client, key: &str, options: &Options,
    make: impl FnOnce(Held) -> F,
) -> Result<Vec<u8>, E>
where
    V: AsRef<[u8]>,
    E: From<Error>,
    F: Future<Output = Result<V, E>>,
{
    let (there, lives) = request::read(key, options)
        .query_async::<(Option<Vec<u8>>, i64)>(connection)
        .await
        .map_err(Error::from)?;
    match there {
        Some(value) if !request::soon_gone(lives, options) => return Ok(value),
        _ => {}
    }
    let claim = match acquire(client, Request::once(key, options), options).await? {
        (session, Value::Int(token)) => Held::new(token, key, session),
        (_, Value::BulkString(value)) => return Ok(value),
        _ => return Err(Error::NotAcquired(key.to_string()).into()),
    };
    let made = tokio::select! {
        biased;
        made = make(claim.clone()) => made,
        _ = claim.lost() => Err(Error::Lost(key.to_string()).into()),
    };
    match made {
        Ok(value) => {
            let value = value.as_ref().to_vec();
            claim.finish(&request::done(key, claim.token, &value, options)).await?;
            Ok(value)
        }
        Err(error) => {
            let _ = claim.finish(redis::cmd("DONE").arg(key).arg(claim.token)).await; // gives up
            Err(error)
        }
    }
}

async fn acquire(
    client: &Client, mut request: Request, options: &Options,
) -> Result<(Session, Value), Error> {
    loop {
        let mut asked = None;
        let error = match Session::open(client).await {
            Ok(session) => {
                asked = Some(Instant::now());
                match session.first(&request.cmd(), request.within()).await {
                    Ok(reply) => {
                        return Ok((session.holds(options.timeout.max(ANSWER_WITHIN)), reply));
                    }
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        sleep(request.pause_after(error, asked)?).await;
    }
}

impl Held {
    fn new(token: i64, key: &str, session: Session) -> Self {
        Held { token, key: key.into(), session: session.into() }
    }

    /// Ends as soon as the lock is lost.
    pub async fn lost(&self) {
        let mut lost = self.session.lost.clone();
        let _ = lost.wait_for(|lost| *lost).await;
    }

    /// Lost if the lock was lost.
    pub fn check(&self) -> Result<(), Error> {
        if *self.session.lost.borrow() { Err(self.is_lost()) } else { Ok(()) }
    }

    /// Runs a command in Redis only if the lock is still held.
    pub async fn fence(&self, command: &Cmd) -> Result<Value, Error> {
        self.call(&request::fence(&self.key, self.token, command)).await
    }

    /// From now on a crashed proxy can leave the lock behind for so long.
    pub async fn extend(&self, timeout: Duration) -> Result<(), Error> {
        let mut relock = redis::cmd("RELOCK");
        relock.arg(&*self.key).arg(self.token).arg(millis(timeout));
        self.finish(&relock).await
    }

    /// Releases the lock. The error is Lost if it was not held until now.
    pub async fn release(self) -> Result<(), Error> {
        let mut unlock = redis::cmd("UNLOCK");
        unlock.arg(&*self.key).arg(self.token);
        self.finish(&unlock).await
    }

    fn is_lost(&self) -> Error {
        Error::Lost(self.key.to_string())
    }

    async fn finish(&self, command: &Cmd) -> Result<(), Error> {
        match self.call(command).await? {
            Value::Int(1) => Ok(()),
            _ => Err(self.is_lost()),
        }
    }

    async fn call(&self, command: &Cmd) -> Result<Value, Error> {
        self.check()?;
        match timeout(ANSWER_WITHIN, ask(self.session.connection.clone(), command)).await {
            Err(_) => Err(self.is_lost()),
            Ok(Err(error)) if error.code() == Some("FENCED") => Err(self.is_lost()),
            Ok(Err(error)) if server_error(&error) => Err(error.into()),
            Ok(Err(_)) => Err(self.is_lost()),
            Ok(Ok(reply)) => Ok(reply),
        }
    }
}

async fn ask(mut connection: MultiplexedConnection, command: &Cmd) -> Result<Value, RedisError> {
    match connection.send_packed_command(command).await? {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

/// The connection of a lock. Its task ends with it.
struct Session {
    connection: MultiplexedConnection,
    lost: watch::Receiver<bool>,
    loses: Arc<watch::Sender<bool>>,
    task: Option<JoinHandle<()>>,
}

impl Session {
    /// Redis tells of nothing but replies here, apart from the loss of the lock.
    async fn open(client: &Client) -> Result<Session, RedisError> {
        let mut info = client.get_connection_info().clone();
        info.redis.protocol = ProtocolVersion::RESP3;
        let (loses, lost) = watch::channel(false);
        let loses = Arc::new(loses);
        let told = loses.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(ANSWER_WITHIN)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    told.send_replace(true);
                }
                Ok::<_, redis::aio::SendError>(())
            });
        let connection =
            Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Session { connection, lost, loses, task: None })
    }

    /// Asks, with pings behind it until there is a reply. The proxy keeps the pings of a long wait,
    /// so they become rarer.
    async fn first(&self, command: &Cmd, within: Option<Duration>) -> Result<Value, RedisError> {
        let asked = Instant::now();
        let mut reply = std::pin::pin!(ask(self.connection.clone(), command));
        loop {
            let every = (asked.elapsed() / 60).clamp(PING_EVERY, 15 * PING_EVERY);
            tokio::select! {
                biased;
                reply = &mut reply => return reply,
                _ = sleep(every) => {}
            }
            if within.is_some_and(|within| asked.elapsed() >= within) {
                return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
            }
            let connection = self.connection.clone();
            tokio::spawn(async move { ask(connection, &redis::cmd("PING")).await }); // ends with it
        }
    }

    /// From now on the lock is lost when nothing is answered for so long.
    fn holds(mut self, silent: Duration) -> Self {
        let (connection, loses) = (self.connection.clone(), self.loses.clone());
        self.task = Some(tokio::spawn(async move {
            loop {
                sleep(PING_EVERY).await;
                match timeout(silent, ask(connection.clone(), &redis::cmd("PING"))).await {
                    Ok(Err(error)) if server_error(&error) => {} // the user may not
                    Ok(Ok(_)) => {}
                    _ => break,
                }
            }
            loses.send_replace(true);
        }));
        self
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
