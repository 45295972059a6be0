//! What the locks of both kinds ask for, and when they ask again.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use redis::{Arg, Cmd, Pipeline, RedisError};

use crate::{Error, Options, Wait, ANSWER_WITHIN};

const AWAY_WITHIN: Duration = Duration::from_secs(30); // a proxy that is replaced is back by then

/// A duration as seconds, with the thousandths that lockproxy knows.
pub(crate) fn millis(time: Duration) -> String {
    format!("{}.{:03}", time.as_secs(), time.subsec_millis())
}

/// A LOCK or ONCE. It is sent again, for the rest of the wait and by the same owner, when the proxy is
/// restarted or replaced. A command whose wait was ended has had no effect; a lock whose connection is
/// lost is released, or given to its owner again.
pub(crate) struct Request {
    words: Vec<String>,
    rest: Wait,
    ends: Option<Instant>,
    away: Instant,
}

impl Request {
    pub(crate) fn lock(key: &str, options: &Options) -> Self {
        let mut words = vec!["LOCK".into(), key.into(), millis(options.timeout)];
        if let Some(note) = &options.note {
            words.extend(["NOTE".into(), note.clone()]);
        }
        Request::new(words, options)
    }

    pub(crate) fn once(key: &str, options: &Options) -> Self {
        let mut words = vec!["ONCE".into(), key.into(), millis(options.timeout)];
        if let Some(early) = options.early {
            words.extend(["EARLY".into(), millis(early)]);
        }
        Request::new(words, options)
    }

    fn new(mut words: Vec<String>, options: &Options) -> Self {
        words.push("SESSION".into());
        if let Some(max) = options.max {
            words.extend(["MAX".into(), millis(max)]);
        }
        words.extend(["OWNER".into(), options.owner.clone().unwrap_or_else(my_name)]);
        let began = Instant::now();
        let ends = match options.wait {
            Wait::For(wait) => began.checked_add(wait),
            _ => None,
        };
        Request { words, rest: options.wait, ends, away: began }
    }

    pub(crate) fn cmd(&self) -> Cmd {
        let mut cmd = Cmd::new();
        for word in &self.words {
            cmd.arg(word);
        }
        match self.rest {
            Wait::No => {}
            Wait::For(wait) => {
                cmd.arg("WAIT").arg(millis(wait.max(Duration::from_millis(1))));
            }
            Wait::Forever => {
                cmd.arg("WAIT").arg(0);
            }
        }
        cmd
    }

    /// For how long the reply can take: longer than the wait.
    pub(crate) fn within(&self) -> Option<Duration> {
        match self.rest {
            Wait::No => Some(ANSWER_WITHIN),
            Wait::For(wait) => Some(wait.saturating_add(ANSWER_WITHIN)),
            Wait::Forever => None,
        }
    }

    /// How long to pause before it is sent again, or the error, if that is final.
    pub(crate) fn pause_after(
        &mut self, error: RedisError, asked: Option<Instant>,
    ) -> Result<Duration, Error> {
        let now = Instant::now();
        if asked.is_some_and(|asked| now - asked > ANSWER_WITHIN) {
            self.away = now; // it has been there meanwhile
        }
        let until = self.away + AWAY_WITHIN;
        let until = self.ends.map_or(until, |ends| ends.min(until));
        let text = error.to_string();
        if text.contains("unknown command") {
            return Err(Error::NotLockproxy);
        }
        let is_away = error.is_io_error() || error.code() == Some("TRYAGAIN");
        if self.rest == Wait::No || now >= until || !is_away {
            return Err(error.into());
        }
        let pause = Duration::from_millis(50 + random() % 450).min(until - now); // not all at once
        if let Some(ends) = self.ends {
            self.rest = Wait::For(ends.saturating_duration_since(now + pause));
        }
        Ok(pause)
    }
}

/// GET and how long the value lives, in milliseconds.
pub(crate) fn read(key: &str, options: &Options) -> Pipeline {
    let mut both = redis::pipe();
    both.get(key);
    if options.early.is_some() {
        both.pttl(key);
    } else {
        both.cmd("ECHO").arg(-1); // the same number of replies
    }
    both
}

pub(crate) fn soon_gone(lives: i64, options: &Options) -> bool {
    let early = options.early.unwrap_or_default().as_millis();
    lives >= 0 && (lives as u128) < early
}

pub(crate) fn done(key: &str, token: i64, value: &[u8], options: &Options) -> Cmd {
    let mut done = redis::cmd("DONE");
    done.arg(key).arg(token).arg(value);
    if let Some(ttl) = options.ttl {
        done.arg("PX").arg(ttl.as_millis() as u64);
    }
    done
}

pub(crate) fn fence(key: &str, token: i64, command: &Cmd) -> Cmd {
    let mut fence = redis::cmd("FENCE");
    fence.arg(key).arg(token);
    for word in command.args_iter() {
        match word {
            Arg::Simple(word) => fence.arg(word),
            Arg::Cursor => fence.arg(0),
        };
    }
    fence
}

/// Whether it is an error reply, and the connection is as before.
#[cfg(feature = "tokio")]
pub(crate) fn server_error(error: &RedisError) -> bool {
    error.code().is_some() && !error.is_io_error()
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

/// The keys of a new hasher are random.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}
