// Where a question is asked and from where it is answered (A-20, A-21, A-61, A-70, D-46, Q-13).

import { RELATED, Scenario, accept, check, differs, pause } from './session.mjs';

export default class extends Scenario {
  name = 'tasks-2025-question-places';
  description =
    'While nobody waits for the result a question is asked on the GET stream, and not again on another stream. A stream that broke ' +
    'before the answer asks again where it is resumed or opened anew, and the first answer counts. A client that declares no ' +
    'elicitation is asked nothing.';

  async judge({ open }) {
    const session = await open();
    return [
      check('tasks-2025-question-on-get', 'Without tasks/result the question comes on the GET stream', await onGet(await open())),
      check('tasks-2025-question-resumed', 'A resumed stream repeats the question under the same id', await resumed(session)),
      check('tasks-2025-question-again', 'A new tasks/result asks again, and the first answer counts', await again(session)),
      check('tasks-2025-question-once', 'Of two waiters one is asked', await once(session)),
      check('tasks-2025-question-elsewhere', 'The same owner answers from another session', await elsewhere(session, await open())),
      check('tasks-2025-question-undeclared', 'A client that cannot be asked is not asked', await undeclared(await open({ capabilities: {} })), 'client/elicitation'),
    ];
  }
}

const begin = (session, filename) => session.begin('confirm_delete', { filename });
const wait = (session, task) => session.start('tasks/result', { taskId: task.taskId });
const deleted = (reply) => (reply?.result?.content?.[0]?.text?.includes('deleted') ? [] : [`the reply is ${JSON.stringify(reply)}`]);

async function onGet(session) {
  const get = await session.listen();
  const task = await begin(session, 'get.txt');
  const asked = await get.question();
  if (!asked) return ['no question came on the GET stream'];
  const errors = differs('related-task', asked.params._meta?.[RELATED], { taskId: task.taskId });
  const waiting = await wait(session, task);
  await pause(300);
  if (waiting.frames.some((frame) => frame.id === asked.id)) errors.push('the same message is on two streams');
  const { status } = await session.answer(asked, accept({ confirm: true }));
  return [...errors, ...differs('the status', status, 202), ...deleted(await waiting.response(5_000))];
}

async function resumed(session) {
  const task = await begin(session, 'resumed.txt');
  const broken = await wait(session, task);
  const asked = await broken.question();
  const [first] = broken.events;
  await broken.interrupt();
  if (!asked) return ['no question came'];
  if (!first.id) return [];
  const stream = await session.listen({ 'Last-Event-ID': first.id });
  const repeated = await stream.question();
  if (!repeated) return [`the resumed stream did not ask (HTTP ${stream.status})`];
  const errors = differs('the id', repeated.id, asked.id);
  await session.answer(repeated, accept({ confirm: true }));
  const reply = await stream.until((frame) => frame.id === broken.id, 5_000);
  return [...errors, ...deleted(reply)];
}

async function again(session) {
  const task = await begin(session, 'again.txt');
  const broken = await wait(session, task);
  const asked = await broken.question();
  await broken.drop();
  const waiting = await wait(session, task);
  const repeated = await waiting.question();
  if (!asked || !repeated) return ['the new tasks/result did not ask'];
  const errors = repeated.id === asked.id ? ['the same id was used for two messages'] : [];
  await session.answer(asked, accept({ confirm: true }));
  await session.answer(repeated, accept({ confirm: false }));
  return [...errors, ...deleted(await waiting.response(5_000))];
}

async function once(session) {
  const task = await begin(session, 'once.txt');
  const waiters = [await wait(session, task), await wait(session, task)];
  await Promise.any(waiters.map(async (one) => (await one.question()) ?? Promise.reject(new Error('none'))));
  await pause(300);
  const questions = waiters.flatMap((one) => one.frames.filter((frame) => frame.method === 'elicitation/create'));
  const errors = new Set(questions.map(({ id }) => id)).size === questions.length ? [] : ['one message is on two streams'];
  await session.answer(questions[0], accept({ confirm: true }));
  const replies = await Promise.all(waiters.map((one) => one.response(5_000)));
  return [...errors, ...replies.flatMap(deleted)];
}

async function elsewhere(session, other) {
  const task = await begin(session, 'elsewhere.txt');
  const waiting = await wait(session, task);
  const asked = await waiting.question();
  if (!asked) return ['no question came'];
  const { status } = await other.answer(asked, accept({ confirm: true }));
  return [...differs('the status', status, 202), ...deleted(await waiting.response(5_000))];
}

async function undeclared(session) {
  const call = await session.start('tools/call', { name: 'confirm_delete', arguments: { filename: 'undeclared.txt' }, task: {} });
  const created = await call.response();
  if (!created?.result?.task) return [];
  const waiting = await wait(session, created.result.task);
  const asked = await waiting.question(1_000);
  await session.request('tasks/cancel', { taskId: created.result.task.taskId });
  return asked ? [`it was asked ${JSON.stringify(asked)}`] : [];
}
