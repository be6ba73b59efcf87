//! A minimal Redis for the import: RESP over TCP, and the commands that Faktory's layout needs. Also a client for any Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;

use super::Stream;

type Bytes = Vec<u8>;

#[derive(Debug, Default)]
struct State {
    keys: BTreeMap<Bytes, Value>,
    clients: BTreeMap<u64, String>,
    password: Option<String>,
}

#[derive(Debug)]
enum Value {
    Text(Bytes),
    List(Vec<Bytes>),
    Set(BTreeSet<Bytes>),
    Sorted(BTreeMap<Bytes, f64>),
}

enum Reply {
    Ok,
    Error(&'static str),
    Number(i64),
    Bulk(Bytes),
    List(Vec<Reply>),
    Null,
    /// The answer to HELLO 3, which has to be a map: PyPI's client sends it.
    Hello,
}

/// Sends one command to the Redis at an address or at a socket's path. Returns the texts and numbers of its answer, in
/// order, without their structure.
pub(crate) fn ask(redis: &str, words: &[&str]) -> io::Result<Vec<String>> {
    let mut request = format!("*{}\r\n", words.len());
    words
        .iter()
        .for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
    let mut stream = connect(redis)?;
    stream.write_all(request.as_bytes())?;
    let (mut from, mut texts, mut open) = (BufReader::new(stream), Vec::new(), 1);
    while open > 0 {
        open -= 1;
        let mut line = String::new();
        from.read_line(&mut line)?;
        let (kind, rest) = line
            .trim_end()
            .split_at_checked(1)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        match kind {
            "+" | ":" => texts.push(rest.to_owned()),
            "$" if rest != "-1" => {
                let mut text = vec![0; rest.parse::<usize>().unwrap() + 2];
                from.read_exact(&mut text)?;
                text.truncate(text.len() - 2);
                texts.push(String::from_utf8(text).unwrap());
            }
            "*" => open += rest.parse::<usize>().unwrap(),
            _ => return Err(io::Error::other(line)),
        }
    }
    Ok(texts)
}

/// A connection that has sent nothing.
pub(crate) fn connect(redis: &str) -> io::Result<Box<dyn Stream>> {
    Ok(match redis.strip_prefix("unix://") {
        Some(path) => Box::new(UnixStream::connect(path)?),
        None => Box::new(TcpStream::connect(redis)?),
    })
}

/// Serves until the test ends.
pub(crate) fn start(password: Option<&str>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let state = State {
        password: password.map(str::to_owned),
        ..State::default()
    };
    let state = Arc::new(Mutex::new(state));
    thread::spawn(move || {
        for (stream, id) in listener.incoming().zip(1..) {
            let (stream, state) = (stream.unwrap(), Arc::clone(&state));
            thread::spawn(move || {
                serve(&stream, id, &state);
                state.lock().unwrap().clients.remove(&id);
            });
        }
    });
    address
}

fn serve(stream: &TcpStream, id: u64, state: &Mutex<State>) {
    let peer = stream.peer_addr().unwrap().to_string();
    state.lock().unwrap().clients.insert(id, peer);
    let mut allowed = state.lock().unwrap().password.is_none();
    let mut from = BufReader::new(stream);
    while let Some(words) = command(&mut from) {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
        let mut state = state.lock().unwrap();
        let reply = match name.as_str() {
            "AUTH"
                if words.last().map(Vec::as_slice)
                    == state.password.as_deref().map(str::as_bytes) =>
            {
                allowed = true;
                Reply::Ok
            }
            "AUTH" => Reply::Error("WRONGPASS invalid username-password pair or user is disabled."),
            _ if !allowed => Reply::Error("NOAUTH Authentication required."),
            name => state.answer(id, name, &words[1..]),
        };
        drop(state);
        let mut bytes = Vec::new();
        reply.write(&mut bytes);
        if (&mut &*stream).write_all(&bytes).is_err() {
            return;
        }
    }
}

fn command(from: &mut impl BufRead) -> Option<Vec<Bytes>> {
    let count = header(from, '*')?;
    (0..count)
        .map(|_| {
            let mut bytes = vec![0; header(from, '$')? + 2];
            from.read_exact(&mut bytes).ok()?;
            bytes.truncate(bytes.len() - 2);
            Some(bytes)
        })
        .collect()
}

fn header(from: &mut impl BufRead, kind: char) -> Option<usize> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    line.trim_end().strip_prefix(kind)?.parse().ok()
}

impl Reply {
    fn write(&self, out: &mut Bytes) {
        match self {
            Self::Ok => out.extend_from_slice(b"+OK\r\n"),
            Self::Error(text) => out.extend_from_slice(format!("-{text}\r\n").as_bytes()),
            Self::Number(number) => out.extend_from_slice(format!(":{number}\r\n").as_bytes()),
            Self::Bulk(bytes) => {
                out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Hello => out.extend_from_slice(b"%1\r\n$5\r\nproto\r\n:3\r\n"),
            Self::Null => out.extend_from_slice(b"$-1\r\n"),
            Self::List(replies) => {
                out.extend_from_slice(format!("*{}\r\n", replies.len()).as_bytes());
                replies.iter().for_each(|reply| reply.write(out));
            }
        }
    }

    fn bulks(items: impl IntoIterator<Item = Bytes>) -> Self {
        Self::List(items.into_iter().map(Reply::Bulk).collect())
    }

    fn scanned(items: impl IntoIterator<Item = Bytes>) -> Self {
        Self::List(vec![Self::Bulk(b"0".to_vec()), Self::bulks(items)])
    }
}

fn number(word: &[u8]) -> i64 {
    String::from_utf8_lossy(word).parse().unwrap()
}

/// Applies Redis's range rules: negative indices count from the end.
fn range<T>(items: &[T], first: i64, last: i64) -> &[T] {
    let length = i64::try_from(items.len()).unwrap();
    let index = |at: i64| if at < 0 { at + length } else { at };
    let (first, end) = (index(first).max(0), (index(last) + 1).clamp(0, length));
    if first >= end {
        &[]
    } else {
        &items[usize::try_from(first).unwrap()..usize::try_from(end).unwrap()]
    }
}

impl State {
    fn answer(&mut self, id: u64, name: &str, words: &[Bytes]) -> Reply {
        match (name, words) {
            ("PING" | "SELECT", _) | ("CLIENT", [_, ..])
                if words
                    .first()
                    .is_none_or(|what| what != b"ID" && what != b"LIST") =>
            {
                Reply::Ok
            }
            ("CLIENT", [what]) if what == b"ID" => Reply::Number(i64::try_from(id).unwrap()),
            ("CLIENT", [what]) if what == b"LIST" => {
                let line = |(id, peer): (&u64, &String)| {
                    format!("id={id} addr={peer} flags=N db=0 cmd=brpop\n")
                };
                Reply::Bulk(
                    self.clients
                        .iter()
                        .map(line)
                        .collect::<String>()
                        .into_bytes(),
                )
            }
            ("SCAN", _) => Reply::scanned(self.keys.keys().cloned()),
            ("TYPE", [key]) => Reply::Bulk(
                self.keys
                    .get(key)
                    .map_or("none", Value::kind)
                    .as_bytes()
                    .to_vec(),
            ),
            ("SET", [key, text]) => {
                self.keys.insert(key.clone(), Value::Text(text.clone()));
                Reply::Ok
            }
            ("GET", [key]) => match self.keys.get(key) {
                Some(Value::Text(text)) => Reply::Bulk(text.clone()),
                Some(_) => WRONG,
                None => Reply::Null,
            },
            ("SADD", [key, members @ ..]) => {
                let Value::Set(set) = self.value(key, Value::Set(BTreeSet::new())) else {
                    return WRONG;
                };
                set.extend(members.iter().cloned());
                Reply::Ok
            }
            ("SSCAN", [key, ..]) => match self.keys.get(key) {
                Some(Value::Set(set)) => Reply::scanned(set.iter().cloned()),
                Some(_) => WRONG,
                None => Reply::scanned([]),
            },
            ("LPUSH", [key, entries @ ..]) => {
                let Value::List(list) = self.value(key, Value::List(Vec::new())) else {
                    return WRONG;
                };
                entries
                    .iter()
                    .for_each(|entry| list.insert(0, entry.clone()));
                Reply::Ok
            }
            ("RPUSH", [key, entries @ ..]) => {
                let Value::List(list) = self.value(key, Value::List(Vec::new())) else {
                    return WRONG;
                };
                list.extend(entries.iter().cloned());
                Reply::Ok
            }
            ("HELLO", _) => Reply::Hello,
            ("SAVE" | "BGSAVE", []) => Reply::Ok,
            ("LRANGE", [key, first, last]) => match self.keys.get(key) {
                Some(Value::List(list)) => {
                    Reply::bulks(range(list, number(first), number(last)).iter().cloned())
                }
                Some(_) => WRONG,
                None => Reply::List(Vec::new()),
            },
            ("LREM", [key, count, entry]) if number(count) == -1 => {
                let Some(Value::List(list)) = self.keys.get_mut(key) else {
                    return Reply::Number(0);
                };
                let at = list.iter().rposition(|it| it == entry);
                at.map(|at| list.remove(at));
                self.forget_if_empty(key);
                Reply::Number(at.map_or(0, |_| 1))
            }
            ("ZADD", [key, score, entry]) => {
                let Value::Sorted(set) = self.value(key, Value::Sorted(BTreeMap::new())) else {
                    return WRONG;
                };
                set.insert(
                    entry.clone(),
                    String::from_utf8_lossy(score).parse().unwrap(),
                );
                Reply::Ok
            }
            ("ZRANGE", [key, first, last, scores]) if scores == b"WITHSCORES" => {
                match self.keys.get(key) {
                    Some(Value::Sorted(set)) => {
                        let mut sorted: Vec<_> = set.iter().collect();
                        sorted.sort_by(|(a, x), (b, y)| x.total_cmp(y).then(a.cmp(b)));
                        let entries = range(&sorted, number(first), number(last)).iter();
                        Reply::bulks(entries.flat_map(|(entry, score)| {
                            [(*entry).clone(), score.to_string().into_bytes()]
                        }))
                    }
                    Some(_) => WRONG,
                    None => Reply::List(Vec::new()),
                }
            }
            ("ZREM", [key, entries @ ..]) => {
                let Some(Value::Sorted(set)) = self.keys.get_mut(key) else {
                    return Reply::Number(0);
                };
                let removed = entries
                    .iter()
                    .filter(|entry| set.remove(*entry).is_some())
                    .count();
                self.forget_if_empty(key);
                Reply::Number(i64::try_from(removed).unwrap())
            }
            _ => {
                eprintln!(
                    "the test's Redis does not know {name} with {} arguments",
                    words.len()
                );
                Reply::Error("ERR unknown command")
            }
        }
    }

    fn value(&mut self, key: &[u8], new: Value) -> &mut Value {
        self.keys.entry(key.to_vec()).or_insert(new)
    }

    fn forget_if_empty(&mut self, key: &[u8]) {
        let empty = match self.keys.get(key) {
            Some(Value::List(list)) => list.is_empty(),
            Some(Value::Sorted(set)) => set.is_empty(),
            Some(Value::Text(_) | Value::Set(_)) | None => false,
        };
        if empty {
            self.keys.remove(key);
        }
    }
}

const WRONG: Reply =
    Reply::Error("WRONGTYPE Operation against a key holding the wrong kind of value");

impl Value {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::Sorted(_) => "zset",
        }
    }
}
