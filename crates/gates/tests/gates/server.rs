//! A tiny HTTP server on loopback that answers with exactly the bytes a test asks for. It stands in for Prometheus only where
//! the point is a fault that a real one does not produce on demand (half a body, a wrong type, a redirect, silence), or what was sent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came over the wire.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Request line and headers.
    pub head: String,
    /// Body.
    pub body: String,
}

impl Received {
    /// All values of a header.
    pub fn headers(&self, name: &str) -> Vec<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned()).collect()
    }

    /// The `query` parameter of the form.
    pub fn query(&self) -> String {
        let mut pairs = url::form_urlencoded::parse(self.body.as_bytes());
        pairs.find(|(key, _)| key == "query").map(|(_, value)| value.into_owned()).unwrap_or_default()
    }
}

/// What the server does with a request.
pub enum Act {
    /// Send these bytes and close.
    Send(Vec<u8>),
    /// Send the first bytes, then one more byte every 50 ms of the rest, for ever.
    Drip(Vec<u8>),
    /// Say nothing, for ever.
    Silence,
    /// Break the connection off (RST).
    Reset,
}

/// A running server; it ends with the test's runtime.
pub struct Server {
    pub port: u16,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    /// Answers the n-th request (from 0) with `act(n, request)`.
    pub async fn start(act: impl Fn(usize, &Received) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (act, log) = (Arc::new(act), Arc::clone(&received));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (act, log) = (Arc::clone(&act), Arc::clone(&log));
                tokio::spawn(async move { serve(stream, &*act, &log).await });
            }
        });
        Self { port, received }
    }

    /// Answers everything with `bytes`.
    pub async fn sending(bytes: Vec<u8>) -> Self {
        Self::start(move |_, _| Act::Send(bytes.clone())).await
    }

    pub fn url(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, act: &(dyn Fn(usize, &Received) -> Act + Sync), log: &Mutex<Vec<Received>>) {
    let request = receive(&mut stream).await;
    let n = {
        let mut log = log.lock().unwrap();
        log.push(request.clone());
        log.len() - 1
    };
    match act(n, &request) {
        Act::Send(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Act::Drip(bytes) => {
            let _ = stream.write_all(&bytes).await;
            while stream.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Act::Reset => {
            let _ = stream.set_zero_linger();
        }
        Act::Silence => std::future::pending().await,
    }
}

async fn receive(stream: &mut TcpStream) -> Received {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let received = Received { head: head.to_owned(), body: body.to_owned() };
            let length = received.headers("content-length").first().and_then(|l| l.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return received;
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).await {
            Ok(n) if n > 0 => bytes.extend_from_slice(&buffer[..n]),
            _ => return Received::default(),
        }
    }
}

/// A complete HTTP answer.
pub fn http(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut lines = vec![format!("HTTP/1.1 {status} X"), format!("Content-Length: {}", body.len())];
    lines.extend(headers.iter().map(|(key, value)| format!("{key}: {value}")));
    format!("{}\r\n\r\n{body}", lines.join("\r\n")).into_bytes()
}

/// A complete HTTP 200 with a JSON body.
pub fn json(body: &str) -> Vec<u8> {
    http(200, &[("Content-Type", "application/json")], body)
}

/// The body of a successful answer.
pub fn vector(series: &str) -> String {
    format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{series}]}}}}"#)
}

pub const ONE: &str = r#"{"metric":{"__name__":"up","job":"x"},"value":[1700000000,"1"]}"#;
