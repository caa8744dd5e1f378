// Tasks belong to their owner, not to the session that began them (A-25, A-28, A-55, A-67, D-38, D-46).

import { Scenario, accept, check, terminal } from './session.mjs';

export default class extends Scenario {
  name = 'tasks-2025-hand-over';
  description =
    'A client that comes back with a new session finds its tasks: by id, in the list and with the result, also when the old session ' +
    'was ended. A question that was open is asked again there, and the new session can cancel.';

  async judge({ open }) {
    const old = await open();
    const done = await old.begin('slow_compute', { seconds: 0, label: 'kept' });
    await old.poll(done.taskId, terminal);
    const asking = await old.begin('confirm_delete', { filename: 'hand-over.txt' });
    await old.poll(asking.taskId, (task) => task.status === 'input_required', 5_000);
    const running = await old.begin('slow_compute', { seconds: 30, label: 'running' });
    await old.end();
    const session = await open();
    const got = await session.request('tasks/get', { taskId: done.taskId });
    const result = await session.request('tasks/result', { taskId: done.taskId });
    return [
      check('tasks-2025-hand-over-get', 'tasks/get of a new session finds the task', got.result?.status === 'completed' ? [] : [JSON.stringify(got.error ?? got.result)]),
      check('tasks-2025-hand-over-result', 'tasks/result of a new session brings the result', result.result?.content?.[0]?.text?.includes('kept') ? [] : [JSON.stringify(result.error ?? result.result)]),
      check('tasks-2025-hand-over-list', 'tasks/list of a new session names it', await listed(session, done.taskId)),
      check('tasks-2025-hand-over-question', 'A question that was open is asked and answered there', await asked(session, asking.taskId)),
      check('tasks-2025-hand-over-cancel', 'The new session can cancel', await cancelled(session, running.taskId)),
    ];
  }
}

async function listed(session, id) {
  let cursor;
  do {
    const page = await session.call('tasks/list', cursor === undefined ? {} : { cursor });
    if (page.tasks.some((task) => task.taskId === id)) return [];
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return ['it is not listed'];
}

async function asked(session, taskId) {
  const waiting = await session.start('tasks/result', { taskId });
  const question = await waiting.question();
  if (!question) return [`no question came: ${JSON.stringify(waiting.frames)}`];
  await session.answer(question, accept({ confirm: true }));
  const reply = await waiting.response(5_000);
  return reply?.result?.content?.[0]?.text?.includes('deleted') ? [] : [`the reply is ${JSON.stringify(reply)}`];
}

async function cancelled(session, taskId) {
  const reply = await session.request('tasks/cancel', { taskId });
  return reply.result?.status === 'cancelled' ? [] : [JSON.stringify(reply.error ?? reply.result)];
}
