// A task that needs something says so, asks on the stream of tasks/result, and goes on with the answer.

import { RELATED, Scenario, accept, check, differs, terminal, unadvised } from './session.mjs';

export default class extends Scenario {
  name = 'tasks-2025-questions';
  description =
    'A task that asks is input_required. Its questions come on the stream of tasks/result with the related-task metadata. The answer is ' +
    'POSTed and taken with HTTP 202. An accepted, a declined and a dismissed question all reach the tool. Several may be open at once.';

  async judge({ open }) {
    const session = await open();
    const asked = await ask(session, 'accepted.txt');
    const taken = await session.answer(asked.question, accept({ confirm: true }));
    const reply = await asked.waiting.response(5_000);
    const seen = await session.poll(asked.task.taskId, terminal);
    return [
      check('tasks-2025-input-required', 'The task is input_required while it asks', asked.status === 'input_required' ? [] : [`it is ${asked.status}`]),
      check('tasks-2025-question', 'The question is an elicitation with its form', question(asked.question), 'client/elicitation'),
      check('tasks-2025-question-related', 'The question names its task', differs('related-task', asked.question.params._meta?.[RELATED], { taskId: asked.task.taskId })),
      check('tasks-2025-question-waits', 'tasks/result does not answer while the task asks', asked.early ? [`it answered ${JSON.stringify(asked.early)}`] : []),
      check('tasks-2025-answer-taken', 'The answer is HTTP 202 with an empty body', differs('the status', taken.status, 202), 'basic/transports'),
      check('tasks-2025-answer-used', 'The accepted answer reaches the tool, and the same stream brings the result', text(reply, 'deleted')),
      check('tasks-2025-answer-ends', 'The task leaves input_required', seen.at(-1).status === 'completed' ? [] : [`it is ${seen.at(-1).status}`]),
      check('tasks-2025-declined', 'A declined question reaches the tool', await settled(session, { action: 'decline' })),
      check('tasks-2025-dismissed', 'A dismissed question reaches the tool and does not cancel the task', await settled(session, { action: 'cancel' })),
      check('tasks-2025-answer-misfit', 'An answer that does not fit the form is not given to the tool as accepted', await misfit(session), 'client/elicitation'),
      check('tasks-2025-answer-error', 'A question that is answered with an error does not hang', await refusing(session), 'client/elicitation'),
      check('tasks-2025-sampling', 'A task asks the model of the client the same way', await sampling(session), 'client/sampling'),
      check('tasks-2025-several', 'Two open questions are asked, and each answer finds its own', await several(session)),
      check('tasks-2025-late-answer', 'An answer that nobody waits for is taken and disturbs nothing', await late(session, asked)),
      check('tasks-2025-plain-question', 'A plain call asks on its own stream and returns the result there', await plain(session), 'basic/transports'),
    ];
  }
}

async function ask(session, filename) {
  const task = await session.begin('confirm_delete', { filename });
  const waiting = await session.start('tasks/result', { taskId: task.taskId });
  const question = await waiting.question();
  if (!question) throw new Error(`no question came for ${filename}: ${JSON.stringify(waiting.frames)}`);
  const { status } = await session.get(task.taskId);
  const early = await waiting.response(300);
  return { task, waiting, question, status, early };
}

function question(asked) {
  const errors = differs('the method', asked.method, 'elicitation/create');
  if (!['form', undefined].includes(asked.params.mode)) errors.push(`the mode is ${asked.params.mode}`);
  if (!asked.params.requestedSchema?.properties?.confirm) errors.push('the form does not ask to confirm');
  return errors;
}

function text(reply, wanted) {
  const said = reply?.result?.content?.[0]?.text;
  return said?.includes(wanted) ? [] : [`the reply is ${JSON.stringify(reply)}`];
}

async function settled(session, answer) {
  const asked = await ask(session, `${answer.action}.txt`);
  await session.answer(asked.question, answer);
  return text(await asked.waiting.response(5_000), 'kept');
}

async function misfit(session) {
  const asked = await ask(session, 'misfit.txt');
  await session.answer(asked.question, accept({ confirm: 'certainly' }));
  const reply = await asked.waiting.response(3_000);
  if (reply) return text(reply, 'kept');
  await session.call('tasks/cancel', { taskId: asked.task.taskId });
  return [];
}

async function refusing(session) {
  const asked = await ask(session, 'refused.txt');
  const { status } = await session.post({ jsonrpc: '2.0', id: asked.question.id, error: { code: -32602, message: 'no form here' } });
  const seen = await session.poll(asked.task.taskId, terminal, 5_000);
  const errors = terminal(seen.at(-1)) ? [] : [`the task is ${seen.at(-1).status}`];
  return [...errors, ...differs('the status', status, 202)];
}

async function sampling(session) {
  const task = await session.begin('test_sampling', { prompt: 'Name this module' });
  const waiting = await session.start('tasks/result', { taskId: task.taskId });
  const asked = await waiting.question();
  if (asked?.method !== 'sampling/createMessage') return [`it asked ${JSON.stringify(asked)}`];
  const errors = differs('related-task', asked.params._meta?.[RELATED], { taskId: task.taskId });
  const content = { type: 'text', text: 'scheduler' };
  await session.answer(asked, { role: 'assistant', content, model: 'house-model', stopReason: 'endTurn' });
  return [...errors, ...text(await waiting.response(5_000), 'scheduler')];
}

async function several(session) {
  const task = await session.begin('multi_input');
  const waiting = await session.start('tasks/result', { taskId: task.taskId });
  const asked = () => waiting.frames.filter((frame) => frame.method === 'elicitation/create');
  await waiting.until(() => asked().length === 2, 5_000);
  if (asked().length !== 2) return [`${asked().length} questions came`];
  const of = (which) => asked().find((frame) => frame.params.message.includes(which));
  await session.answer(of('second'), accept({ name: 'Grace', confirm: true }));
  const errors = (await session.get(task.taskId)).status === 'completed' ? ['one answer completed it'] : [];
  await session.answer(of('first'), accept({ name: 'Ada', confirm: true }));
  return [...errors, ...text(await waiting.response(5_000), 'Ada and Grace')];
}

async function late(session, asked) {
  const before = await session.get(asked.task.taskId);
  const again = await session.answer(asked.question, accept({ confirm: false }));
  const unknown = await session.answer({ id: 'nobody-asked' }, accept({}));
  const after = await session.get(asked.task.taskId);
  return [
    ...differs('the status of a late answer', again.status, 202),
    ...differs('the status of an unknown answer', unknown.status, 202),
    ...differs('the task', unadvised(after), unadvised(before)),
  ];
}

async function plain(session) {
  const call = await session.start('tools/call', { name: 'confirm_delete', arguments: { filename: 'plain.txt' } });
  const asked = await call.question();
  if (!asked) return [`no question came: ${JSON.stringify(call.frames)}`];
  const errors = asked.params._meta?.[RELATED] ? ['the question names a task'] : [];
  const taken = await session.answer(asked, accept({ confirm: true }));
  return [...errors, ...differs('the status', taken.status, 202), ...text(await call.response(5_000), 'deleted')];
}
