// tasks/get is the task and nothing of its result, and its life follows the rules (A-45, A-46, A-49, A-63, A-64, A-65, D-11).

import { RELATED, Scenario, check, pause, refused, terminal, unadvised } from './session.mjs';

const MOVES = {
  working: ['working', 'input_required', 'completed', 'failed', 'cancelled'],
  input_required: ['working', 'input_required', 'completed', 'failed', 'cancelled'],
  completed: ['completed'],
  failed: ['failed'],
  cancelled: ['cancelled'],
};

export default class extends Scenario {
  name = 'tasks-2025-get';
  description =
    'tasks/get answers with the flat task, never with its result or error. Statuses move as the specification allows and an ended ' +
    'task never changes. Times never go back. The taskId of the request decides. Unknown ids are -32602 for get, result and cancel.';

  async judge({ open }) {
    const session = await open();
    const other = await session.begin('slow_compute', { seconds: 30, label: 'other' });
    const task = await session.begin('slow_compute', { seconds: 1, label: 'get' });
    const lives = [[task, ...(await session.poll(task.taskId, terminal))]];
    await pause(300);
    lives[0].push(await session.get(task.taskId));
    const failing = await session.begin('failing_job');
    lives.push([failing, ...(await session.poll(failing.taskId, terminal))]);
    const misled = await session.call('tasks/get', { taskId: task.taskId, _meta: { [RELATED]: { taskId: other.taskId } } });
    const { exchange } = await session.request('tasks/get', { taskId: task.taskId });
    const ended = lives.map((life) => life.at(-1));
    const checks = [
      check('tasks-2025-flat', 'tasks/get is flat and holds nothing of the result', lives.flatMap((life) => life.slice(1).flatMap(flat))),
      check('tasks-2025-moves', 'Statuses move as allowed', lives.flatMap(moves)),
      check('tasks-2025-completed', 'The work that returned is completed', ended[0].status === 'completed' ? [] : [`it is ${ended[0].status}`]),
      check('tasks-2025-is-error', 'A tool result with isError makes the task failed, with a message', failed(ended[1])),
      check('tasks-2025-clock', 'createdAt stays, lastUpdatedAt never goes back, nothing changes after the end', lives.flatMap(clock)),
      check('tasks-2025-get-plain', 'tasks/get is answered without an event stream', exchange.type.includes('text/event-stream') ? ['it is an event stream'] : []),
      check('tasks-2025-task-id', 'The taskId of the request decides, not its related-task', misled.taskId === task.taskId ? [] : [`it is ${misled.taskId}`]),
      check('tasks-2025-unknown-id', 'Unknown ids are -32602 for get, result and cancel', await unknown(session)),
    ];
    await session.call('tasks/cancel', { taskId: other.taskId });
    return checks;
  }
}

function flat(task) {
  return ['task', 'result', 'error', 'content', 'isError', 'structuredContent', 'inputRequests', 'ttlMs', 'resultType']
    .filter((name) => name in task)
    .map((name) => `${name} is in ${JSON.stringify(task)}`);
}

function moves(life) {
  const steps = life.slice(1).map((task, place) => [life[place].status, task.status]);
  return steps.filter(([from, to]) => !MOVES[from]?.includes(to)).map(([from, to]) => `${from} became ${to}`);
}

function failed(task) {
  const errors = task.status === 'failed' ? [] : [`it is ${task.status}`];
  return task.statusMessage ? errors : [...errors, 'it has no statusMessage'];
}

function clock(life) {
  const errors = [];
  for (const [place, task] of life.slice(1).entries()) {
    const before = life[place];
    if (task.createdAt !== before.createdAt) errors.push(`createdAt moved to ${task.createdAt}`);
    if (Date.parse(task.lastUpdatedAt) < Date.parse(before.lastUpdatedAt)) errors.push(`lastUpdatedAt went back to ${task.lastUpdatedAt}`);
    if (terminal(before) && JSON.stringify(unadvised(task)) !== JSON.stringify(unadvised(before))) errors.push(`an ended task became ${JSON.stringify(task)}`);
  }
  return errors;
}

async function unknown(session) {
  const errors = [];
  for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
    errors.push(...refused(`${method} of an unknown id`, await session.request(method, { taskId: 'no-such-task' }), -32602));
    errors.push(...refused(`${method} without an id`, await session.request(method, {}), -32602));
  }
  return errors;
}
