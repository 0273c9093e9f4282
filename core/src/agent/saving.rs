// SPDX-License-Identifier: GPL-2.0-or-later
//! While energy is saved, the policy has its say only when the fastest core type is needed.

use crate::placement;
use crate::policy::Action;
use crate::table::{Task, TaskState};
use crate::topology::Topology;

/// Takes back what the policy wished for, while all that want to run fit on the efficient cores;
/// whether they do.
pub(super) fn leave_to_efficient(
    tasks: &[Task],
    topology: &Topology,
    actions: &mut Vec<Action>,
) -> bool {
    let room = placement::efficient_room(topology);
    let wants = |task: &&Task| task.state != TaskState::Blocked && !task.kthread;
    if tasks.iter().filter(wants).count() > room {
        return false;
    }
    // The rules' threads are shown as pinned.
    let wished = tasks
        .iter()
        .filter(|task| task.hint.is_some() && !task.pinned);
    actions.extend(wished.map(|task| Action::Hint(task.into(), None)));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{board, task};

    #[test]
    fn while_efficient_cores_suffice_nobody_is_wished_elsewhere() {
        let topology = board(2, 2);
        let mut tasks = [task(0, 0, 0), task(1, 0, 0), task(2, 1, 0)];
        tasks[1].hint = Some(0);
        let mut actions = Vec::new();
        assert!(!leave_to_efficient(&tasks, &topology, &mut actions));
        assert_eq!(actions, []);

        tasks[0].state = TaskState::Blocked;
        tasks[2].hint = Some(0);
        tasks[2].pinned = true;
        assert!(leave_to_efficient(&tasks, &topology, &mut actions));
        assert_eq!(actions, [Action::Hint((&tasks[1]).into(), None)]);
    }
}
