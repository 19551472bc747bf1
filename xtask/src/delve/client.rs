//! A delve that runs one program, spoken to by its JSON-RPC (`service/rpc2`, API version 2).

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A delve, and the program that it holds.
pub struct Delve {
    child: Child,
    reader: BufReader<TcpStream>,
    next: u64,
    entries: HashSet<u64>,
    returns: HashSet<u64>,
}

/// Where a program stands.
pub struct Stop {
    /// Name of the function.
    pub function: String,
    /// Whether it has just begun.
    pub is_entry: bool,
    /// Whether its next instruction returns.
    pub is_return: bool,
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

impl Delve {
    /// Starts `program` under `dlv`, stopped before its first instruction.
    pub fn start(dlv: &str, program: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(dlv)
            .args(["exec", "--headless", "--api-version=2", "--check-go-version=false"])
            .args(["--listen=127.0.0.1:0", "--redirect=stdout:/dev/null"])
            .arg(program)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to run {dlv}"))?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("no output of delve")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default();
        let stream = TcpStream::connect(address).with_context(|| format!("delve said {line:?}"))?;
        Ok(Self {
            child,
            reader: BufReader::new(stream),
            next: 0,
            entries: HashSet::new(),
            returns: HashSet::new(),
        })
    }

    /// One call of `RPCServer.method`.
    pub fn call(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.next += 1;
        let request =
            json!({ "method": format!("RPCServer.{method}"), "params": [params], "id": self.next });
        self.reader.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let mut reply: Value = serde_json::from_str(&line).with_context(|| format!("{line:?}"))?;
        ensure!(reply["error"].is_null(), "{method}: {}", reply["error"]);
        Ok(reply["result"].take())
    }

    /// Stops where `function` has made its frame, and at each of its returns.
    pub fn watch(&mut self, function: &str) -> anyhow::Result<()> {
        let entry = json!({ "Breakpoint": { "functionName": function } });
        // One that it does not know, or that has been inlined everywhere.
        let Ok(made) = self.call("CreateBreakpoint", &entry) else { return Ok(()) };
        self.entries.extend(numbers(&made["Breakpoint"]["addrs"]));
        let found = self.call("FunctionReturnLocations", &json!({ "FnName": function }))?;
        for address in numbers(&found["Addrs"]) {
            self.returns.insert(address);
            // There is one already where a function does nothing but return.
            if !self.entries.contains(&address) {
                self.call("CreateBreakpoint", &json!({ "Breakpoint": { "addr": address } }))?;
            }
        }
        Ok(())
    }

    /// Runs to the next breakpoint. `None` when the program has ended.
    pub fn next_stop(&mut self) -> anyhow::Result<Option<Stop>> {
        let state = self.call("Command", &json!({ "name": "continue" }))?;
        let state = &state["State"];
        if state["exited"] == true {
            return Ok(None);
        }
        let thread = &state["currentThread"];
        let function = thread["function"]["name"].as_str().context("stopped in no function")?;
        let pc = thread["pc"].as_u64().context("no pc")?;
        Ok(Some(Stop {
            function: function.to_owned(),
            is_entry: self.entries.contains(&pc),
            is_return: self.returns.contains(&pc),
        }))
    }

    /// Parameters and results where it stands, as far as delve can tell.
    pub fn values(&mut self) -> anyhow::Result<Vec<Value>> {
        let load = json!({
            "FollowPointers": true, "MaxVariableRecurse": 3, "MaxStringLen": 64,
            "MaxArrayValues": 8, "MaxStructFields": -1
        });
        let scope = json!({ "GoroutineID": -1, "Frame": 0 });
        let found = self.call("ListFunctionArgs", &json!({ "Scope": scope, "Cfg": load }))?;
        Ok(found["Args"].as_array().cloned().unwrap_or_default())
    }
}

impl Drop for Delve {
    fn drop(&mut self) {
        _ = self.call("Detach", &json!({ "Kill": true }));
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
