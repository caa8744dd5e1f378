// tasks/result waits for the end and returns what the call would have returned (A-50 to, D-18, Q-8).

import { RELATED, Scenario, check, differs, pause, refused, terminal } from './session.mjs';

export default class extends Scenario {
  name = 'tasks-2025-result';
  description =
    'tasks/result blocks until the task has ended. Then it returns exactly what a plain call would have: the result with the ' +
    'related-task metadata, or the same JSON-RPC error. Any number may wait, and one that leaves or gives up disturbs nobody.';

  async judge({ open }) {
    const session = await open();
    const plain = await session.call('tools/call', { name: 'slow_compute', arguments: { seconds: 0, label: 'same' } });
    const early = await session.begin('slow_compute', { seconds: 0, label: 'same' });
    await session.poll(early.taskId, terminal);
    const { _meta: meta, ...same } = await session.call('tasks/result', { taskId: early.taskId });
    const again = await session.call('tasks/result', { taskId: early.taskId });
    const { _meta: ignored, ...wanted } = plain;
    return [
      check('tasks-2025-same-result', 'The result is that of a plain call', differs('the result', sorted(same), sorted(wanted))),
      check('tasks-2025-related', 'The result carries the related-task metadata', differs('related-task', meta?.[RELATED], { taskId: early.taskId })),
      check('tasks-2025-result-again', 'It can be read again', differs('the second', sorted({ ...again, _meta: undefined }), sorted(same))),
      ...(await this.waiters(session)),
      check('tasks-2025-result-is-error', 'A failed tool returns its isError result', await isError(session)),
      check('tasks-2025-result-error', 'A call that ended in a JSON-RPC error returns that error', await rpcError(session)),
      check('tasks-2025-result-cancelled', 'The result of a cancelled task is an error that is not "unknown"', await cancelled(session)),
    ];
  }

  /** Three wait, one of them drops its stream and another withdraws its request. */
  async waiters(session) {
    const task = await session.begin('slow_compute', { seconds: 2, label: 'waiters' });
    const begun = Date.now();
    const wait = () => session.start('tasks/result', { taskId: task.taskId });
    const leaving = await wait();
    const first = await wait();
    const withdrawn = await wait();
    const second = await wait();
    const done = Promise.all([first, second].map(async (one) => ({ reply: await one.response(8_000), at: Date.now() })));
    await pause(200);
    await leaving.drop();
    const notice = await session.notify('notifications/cancelled', { requestId: withdrawn.id, reason: 'enough' });
    const during = await session.get(task.taskId);
    const replies = await done;
    const [seen] = (await session.poll(task.taskId, terminal)).slice(-1);
    const early = replies.filter(({ reply, at }) => reply && at - begun < 1_500);
    const text = (reply) => reply?.result?.content?.[0]?.text ?? JSON.stringify(reply);
    const missing = replies.filter(({ reply }) => !text(reply)?.includes('waiters'));
    return [
      check('tasks-2025-blocks', 'tasks/result waits until the task has ended', early.map(({ reply }) => `early: ${JSON.stringify(reply)}`)),
      check('tasks-2025-waiters', 'Every waiter gets the result', missing.map(({ reply }) => `a waiter got ${text(reply)}`)),
      check('tasks-2025-withdrawn', 'notifications/cancelled of a tasks/result ends that wait and not the task', withdraws(notice, during, seen, withdrawn)),
    ];
  }
}

function withdraws(notice, during, seen, withdrawn) {
  const errors = differs('the status of the notification', notice.status, 202);
  if (during.status !== 'working') errors.push(`the task is ${during.status} right after it`);
  if (seen.status !== 'completed') errors.push(`the task ended ${seen.status}`);
  if (withdrawn.frames.some((frame) => frame.result)) errors.push('the withdrawn request was answered with a result');
  return errors;
}

async function isError(session) {
  const task = await session.begin('failing_job');
  const reply = await session.request('tasks/result', { taskId: task.taskId });
  return reply.result?.isError === true && reply.result.content?.length > 0 ? [] : [JSON.stringify(reply.result ?? reply.error)];
}

async function rpcError(session) {
  const task = await session.begin('protocol_error_job');
  const reply = await session.request('tasks/result', { taskId: task.taskId });
  const got = await session.get(task.taskId);
  const errors = refused('tasks/result', reply, -32603);
  if (!reply.error?.message?.includes('protocol error')) errors.push(`the message is ${reply.error?.message}`);
  if (got.status !== 'failed') errors.push(`the task is ${got.status}`);
  return errors;
}

async function cancelled(session) {
  const task = await session.begin('slow_compute', { seconds: 30, label: 'cancelled' });
  await session.call('tasks/cancel', { taskId: task.taskId });
  return refused('tasks/result', await session.request('tasks/result', { taskId: task.taskId }), -32603);
}

function sorted(value) {
  return Object.fromEntries(Object.entries({ isError: false, ...value }).filter(([, part]) => part !== undefined && part !== null).sort());
}
