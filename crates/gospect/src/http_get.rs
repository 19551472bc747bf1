//! Asking over HTTP: one request on a connection of its own, bounded in time and size.

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{ACCEPT, CONNECTION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What is at `path` of whoever listens at `address`: at most `most` bytes of it, had within `limit` from the first
/// packet to the last.
///
/// # Errors
/// Why there is no whole answer, for people: nobody listens, it takes longer, is longer, is another one than 200.
pub fn get(address: SocketAddr, path: &str, limit: Duration, most: usize) -> Result<Bytes, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let answer = runtime.block_on(async { timeout(limit, exchange(address, path, most)).await });
    match answer {
        Ok(answer) => answer.map_err(|error| chain(&*error)),
        Err(_) => Err(format!("no whole answer in {limit:?}")),
    }
}

async fn exchange(address: SocketAddr, path: &str, most: usize) -> Result<Bytes, Failure> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, driving) = handshake(TokioIo::new(stream)).await?;
    // How it ends is what the request is told too.
    let driving = tokio::spawn(driving);
    let request = Request::get(path)
        .header(HOST, address.to_string())
        .header(ACCEPT, "application/json")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    if status != StatusCode::OK {
        return Err(format!("it answers {status}").into());
    }
    let body = Limited::new(answer.into_body(), most).collect().await?.to_bytes();
    driving.abort();
    Ok(body)
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        told = format!("{told}: {deeper}");
        cause = deeper.source();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Instant;

    /// Asks somebody who says `first` to whoever connects, and `rest` for ever then.
    fn asked(first: &'static str, rest: &'static [u8], limit: Duration) -> Result<Bytes, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (over, ended) = std::sync::mpsc::channel::<()>();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            _ = stream.read(&mut [0; 4096]);
            _ = stream.write_all(first.as_bytes());
            // The other side hangs up when it has heard enough.
            while !rest.is_empty() && stream.write_all(rest).is_ok() {}
            _ = ended.recv();
        });
        let begun = Instant::now();
        let answer = get(address, "/status", limit, 1 << 16);
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        drop(over);
        serving.join().unwrap();
        answer
    }

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(300);

    #[test]
    fn an_answer_is_taken_however_it_is_framed() {
        let sized = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        assert_eq!(asked(sized, b"", LONG).as_deref(), Ok(&b"ok"[..]));
        let pieces =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n";
        assert_eq!(asked(pieces, b"", LONG).as_deref(), Ok(&b"ok"[..]));
    }

    #[test]
    fn nobody_is_waited_for_longer_than_that_or_heard_further() {
        let late = Err("no whole answer in 300ms".to_owned());
        assert_eq!(asked("", b"", SHORT), late);
        assert_eq!(asked("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", b"", SHORT), late);
        let endless = "HTTP/1.1 200 OK\r\n\r\n";
        assert_eq!(asked(endless, &[b'x'; 4096], LONG), Err("length limit exceeded".to_owned()));
        let head = asked("HTTP/1.1 200 OK\r\n", b"X: y\r\n", LONG).unwrap_err();
        assert!(head.contains("too large"), "{head}");
    }

    #[test]
    fn what_is_no_answer_is_told() {
        let refused = "HTTP/1.1 421 Misdirected Request\r\nContent-Length: 0\r\n\r\n";
        let expected = "it answers 421 Misdirected Request";
        assert_eq!(asked(refused, b"", LONG), Err(expected.to_owned()));
        let other = asked("SSH-2.0-OpenSSH_9.2\r\n", b"", LONG).unwrap_err();
        assert!(other.contains("invalid HTTP"), "{other}");
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let nobody = get(free, "/status", LONG, 1 << 16).unwrap_err();
        assert!(nobody.contains("refused"), "{nobody}");
    }
}
