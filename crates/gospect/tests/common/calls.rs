//! gRPC calls: what of them is the same in every round.

use std::path::PathBuf;
use testkit::{Fixture, Mode, Toolchain};

/// One round of the fixture: see `fixtures/grpc`.
pub const ROUND: &str = "\
2 client shop.Desk/Get 0
1 client shop.Desk/Get 5 NOT_FOUND failed
1 client shop.None/Get 12 UNIMPLEMENTED failed
1 client shop.Shop/Chat 0
1 client shop.Shop/Chat 1 CANCELLED failed
4 client shop.Shop/Get 0
1 client shop.Shop/Get 0
    server shop.Shop/Get 0 by traceparent
      client shop.Stock/Get 0 by frame
        server shop.Stock/Get 0 by traceparent
1 client shop.Shop/Get 2 UNKNOWN failed
1 client shop.Shop/Get 4 DEADLINE_EXCEEDED failed
1 client shop.Shop/Get 5 NOT_FOUND failed
1 client shop.Shop/List 0
1 client shop.Shop/List 13 INTERNAL failed
1 client shop.Shop/None 12 UNIMPLEMENTED failed
1 client shop.Shop/Put 0
1 client shop.Stock/Get 0
1 server POST 200 /shop.Desk/Get HTTP/2
    server shop.Desk/Get 0 by goroutine
1 server POST 200 /shop.Desk/Get HTTP/2
    server shop.Desk/Get 0 by goroutine
      client shop.Stock/Get 0 by goroutine
      client shop.Stock/Get 0 by goroutine
      client shop.Stock/Get 0 by goroutine
1 server POST 200 /shop.Desk/Get HTTP/2
    server shop.Desk/Get 5 by goroutine
1 server shop.None/Get 12 UNIMPLEMENTED failed
1 server shop.Shop/Chat 0
1 server shop.Shop/Chat 1
1 server shop.Shop/Get 0
1 server shop.Shop/Get 0
    client shop.Stock/Chat 0 by frame
    client shop.Stock/Get 0 by frame
    client shop.Stock/List 0 by frame
1 server shop.Shop/Get 0
    client shop.Stock/Get 0 by context
1 server shop.Shop/Get 0
    client shop.Stock/Get 0 by goroutine
    client shop.Stock/Get 0 by goroutine
    client shop.Stock/Get 0 by goroutine
1 server shop.Shop/Get 10
1 server shop.Shop/Get 2 UNKNOWN failed
1 server shop.Shop/Get 5
1 server shop.Shop/List 0
1 server shop.Shop/List 13 INTERNAL failed
1 server shop.Shop/None 12 UNIMPLEMENTED failed
1 server shop.Shop/Put 0
1 server shop.Stock/Chat 0
9 server shop.Stock/Get 0
1 server shop.Stock/List 0
";

/// gRPC is built in its newest version where that is possible, else in the last that Go 1.19 takes.
pub fn build(go: &Toolchain, mode: Mode) -> PathBuf {
    let recipe = mode.recipe();
    let is_new = go.minor >= 26;
    let recipe = if is_new { recipe } else { recipe.arg("-modfile=old.mod") };
    Fixture::module("grpc", go, &recipe)
}
