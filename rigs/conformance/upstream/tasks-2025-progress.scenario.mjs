// Progress goes on after the task was handed out, with the token of the call, and ends with the task.

import { RELATED, Scenario, check, differs, pause, terminal } from './session.mjs';

export default class extends Scenario {
  name = 'tasks-2025-progress';
  description =
    'Progress of a task is told with the token of the call that began it, until the task ends and not after. It grows, says which ' +
    'task it belongs to, and is sent on one stream. A plain call is told its progress on its own stream.';

  async judge({ open }) {
    const session = await open();
    const get = await session.listen();
    const task = await session.begin('slow_compute', { seconds: 2, label: 'progress' }, { _meta: { progressToken: 'of-the-call' } });
    const waiting = await session.start('tasks/result', { taskId: task.taskId });
    await waiting.response(8_000);
    await session.poll(task.taskId, terminal);
    const ended = Date.now();
    await pause(500);
    const told = notes(get, waiting);
    const plain = await session.start('tools/call', { name: 'slow_compute', arguments: { seconds: 1, label: 'plain' }, _meta: { progressToken: 77 } });
    await plain.response();
    const beside = notes(plain);
    return [
      check('tasks-2025-progress-token', 'Progress of the task carries the token of the call', told.length > 0 ? tokens(told, 'of-the-call') : ['no progress came']),
      check('tasks-2025-progress-grows', 'It grows', [...grows(told), ...grows(beside)], 'basic/utilities/progress'),
      check('tasks-2025-progress-related', 'It says which task it belongs to', told.flatMap(({ frame }) => differs('related-task', frame.params._meta?.[RELATED], { taskId: task.taskId }))),
      check('tasks-2025-progress-ends', 'None comes after the end', told.filter(({ at }) => at > ended + 200).map(({ frame }) => `late: ${JSON.stringify(frame)}`)),
      check('tasks-2025-progress-plain', 'A plain call is told its progress on its own stream', beside.length > 0 ? tokens(beside, 77) : ['no progress came'], 'basic/utilities/progress'),
    ];
  }
}

function notes(...exchanges) {
  const all = exchanges.flatMap((exchange) => exchange.events.filter((event) => event.frame?.method === 'notifications/progress'));
  return all.sort((one, other) => one.at - other.at);
}

function tokens(told, wanted) {
  return told.flatMap(({ frame }) => differs('the token', frame.params.progressToken, wanted));
}

function grows(told) {
  const values = told.map(({ frame }) => frame.params.progress);
  return values.slice(1).filter((value, place) => value <= values[place]).map((value) => `${value} came again or went back`);
}
