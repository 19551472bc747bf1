//! What `gospect spans` tells of gRPC in one Go version, build mode and backend, each of many rounds alike: a
//! cell of `cargo xtask matrix --suite spans_grpc_core`.

#[path = "common/calls.rs"]
mod calls;
#[path = "common/cells.rs"]
mod cells;
#[path = "common/rounds.rs"]
mod rounds;
#[path = "common/trees.rs"]
mod trees;

use calls::{ROUND, build};
use cells::expect;
use testkit::{Mode, selected};

/// Unary calls and streams, from servers, clients and between them.
#[test]
fn root_calls_have_their_trees() {
    expect(&build(&selected(), Mode::selected()), &[], ROUND, 5);
}
