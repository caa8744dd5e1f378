// tasks/cancel ends a task for good, and an ended task cannot be cancelled (A-32, A-45, A-56, A-57, A-64, D-19, D-22).

import { Scenario, check, pause, refused, terminal } from './session.mjs';

export default class extends Scenario {
  name = 'tasks-2025-cancel';
  description =
    'tasks/cancel answers with the task, which is cancelled by then and stays so although its work would have ended later. A task ' +
    'that waits for an answer is cancelled too, and whoever waits for its result is answered. Cancelling an ended task is -32602.';

  async judge({ open }) {
    const session = await open();
    const task = await session.begin('slow_compute', { seconds: 1, label: 'cancel' });
    const waiting = await session.start('tasks/result', { taskId: task.taskId });
    const cancelled = await session.call('tasks/cancel', { taskId: task.taskId });
    const after = await session.get(task.taskId);
    const told = await waiting.response(5_000);
    await pause(1_500);
    const late = await session.get(task.taskId);
    const twice = await session.request('tasks/cancel', { taskId: task.taskId });
    const done = await session.begin('slow_compute', { seconds: 0, label: 'done' });
    await session.poll(done.taskId, terminal);
    const ended = await session.request('tasks/cancel', { taskId: done.taskId });
    const kept = await session.get(done.taskId);
    return [
      check('tasks-2025-cancelled', 'tasks/cancel answers with the flat task, cancelled', flat(cancelled, task)),
      check('tasks-2025-stays-cancelled', 'It is cancelled at once and stays so', [after, late].filter((one) => one.status !== 'cancelled').map((one) => `it is ${one.status}`)),
      check('tasks-2025-cancel-waiter', 'Who waits for the result is answered', told ? [] : ['no answer came']),
      check('tasks-2025-cancel-twice', 'Cancelling a cancelled task is -32602', refused('the second', twice, -32602)),
      check('tasks-2025-cancel-ended', 'Cancelling a completed task is -32602 and changes nothing', [...refused('it', ended, -32602), ...(kept.status === 'completed' ? [] : [`it is ${kept.status}`])]),
      check('tasks-2025-cancel-asking', 'A task that waits for an answer is cancelled', await asking(session)),
      check('tasks-2025-cancel-notice', 'notifications/cancelled of the call does not cancel its task', await notice(session)),
    ];
  }
}

function flat(cancelled, task) {
  const errors = cancelled.status === 'cancelled' ? [] : [`it is ${cancelled.status}`];
  if (cancelled.taskId !== task.taskId) errors.push(`its id is ${cancelled.taskId}`);
  return errors;
}

async function asking(session) {
  const task = await session.begin('confirm_delete', { filename: 'cancelled.txt' });
  await session.poll(task.taskId, (one) => one.status === 'input_required', 5_000);
  const cancelled = await session.call('tasks/cancel', { taskId: task.taskId });
  const after = await session.get(task.taskId);
  return [cancelled, after].filter((one) => one.status !== 'cancelled').map((one) => `it is ${one.status}`);
}

async function notice(session) {
  const call = await session.start('tools/call', { name: 'slow_compute', arguments: { seconds: 1, label: 'notice' }, task: {} });
  const { task } = (await call.response()).result;
  await session.notify('notifications/cancelled', { requestId: call.id, reason: 'too late' });
  const seen = await session.poll(task.taskId, terminal);
  return seen.at(-1).status === 'completed' ? [] : [`it is ${seen.at(-1).status}`];
}
