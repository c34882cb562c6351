//! What happens before a search begins, by moves as a search makes them, so that the laws have seen it.

use sts_plus_model::Answer;

use super::{Game, Node, moves::Move};

/// Longer than any opening is.
const LONG: usize = 400;

fn go<G: Game>(node: &Node<G>, step: Move<G::Deed>) -> Option<Node<G>> {
    let (next, breaches) = G::after(node, step)?;
    assert!(breaches.is_empty(), "{step:?}: {breaches:?}\n{}", G::tell(&next.world).2);
    Some(next)
}

/// One act of people, for nothing.
pub fn act<G: Game>(node: &Node<G>, deed: G::Deed) -> Node<G> {
    let mut node = node.clone();
    node.left.people += 1;
    go(&node, Move::People(deed)).expect("people can do it")
}

/// Until it is so: the controllers first, then the operator, and time when all of them rest.
pub fn until<G: Game>(mut node: Node<G>, is_so: impl Fn(&G::World) -> bool) -> Node<G> {
    for _ in 0..LONG {
        if is_so(&node.world) {
            return node;
        }
        let here = G::key_of_world(&node);
        let controllers = (0..G::sets(&node.world)).map(Move::Controller);
        let mut others = controllers.chain([Move::Operator(Answer::Pass)]).filter_map(|step| go(&node, step));
        let changed = others.find(|next| G::key_of_world(next) != here);
        node = changed.or_else(|| go(&node, Move::Time)).expect("something is due");
    }
    panic!("it never came: {}", G::tell(&node.world).1);
}
