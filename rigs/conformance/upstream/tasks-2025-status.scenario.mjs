// The state of a task is told on the GET stream as tasks/get would say it.

import { RELATED, Scenario, check, terminal } from './session.mjs';

export default class extends Scenario {
  name = 'tasks-2025-status';
  description =
    'While a GET stream is open the end of a task is told there with notifications/tasks/status: the whole task, without the ' +
    'related-task metadata, once.';

  async judge({ open }) {
    const session = await open();
    const other = await open();
    const get = await session.listen();
    const foreign = await other.listen();
    const task = await session.begin('slow_compute', { seconds: 1, label: 'status' });
    const last = await get.until((frame) => about(frame, task) && terminal(frame.params), 8_000);
    const got = await session.get(task.taskId);
    const told = get.frames.filter((frame) => about(frame, task));
    return [
      check('tasks-2025-status-told', 'The end of the task is told on the GET stream', last ? [] : [`told: ${JSON.stringify(told)}`]),
      check('tasks-2025-status-whole', 'What is told is what tasks/get says', last ? same(last.params, got) : []),
      check('tasks-2025-status-bare', 'It carries no related-task metadata', told.filter((frame) => frame.params._meta?.[RELATED]).map(() => 'it carries one')),
      check('tasks-2025-status-once', 'The end is told once, and only to the session that follows the task', once(told, foreign.frames.filter((frame) => about(frame, task)))),
    ];
  }
}

function about(frame, task) {
  return frame.method === 'notifications/tasks/status' && frame.params.taskId === task.taskId;
}

function same(told, got) {
  const bare = ({ _meta, pollInterval, ...task }) => JSON.stringify(Object.fromEntries(Object.entries(task).sort()));
  return bare(told) === bare(got) ? [] : [`told ${bare(told)}, tasks/get says ${bare(got)}`];
}

function once(told, foreign) {
  const ends = told.filter((frame) => terminal(frame.params)).length;
  return ends <= 1 && foreign.length === 0 ? [] : [`told ${ends} times, to another session ${foreign.length} times`];
}
