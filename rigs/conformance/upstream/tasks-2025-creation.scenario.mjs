// The answer to a call as a task: the task, nested, at once, working.

import { Scenario, check } from './session.mjs';

export default class extends Scenario {
  name = 'tasks-2025-creation';
  description =
    'A call with params.task is answered at once with a CreateTaskResult: the task is nested, working, has its times and its ttl, ' +
    'and an id of its own. Nothing of the result is in it. Members of params.task that the server does not know are no error.';

  async judge({ open }) {
    const session = await open();
    const start = Date.now();
    const first = await session.call('tools/call', { name: 'slow_compute', arguments: { seconds: 30, label: 'a' }, task: { ttl: 120_000 } });
    const took = Date.now() - start;
    const again = await session.call('tools/call', { name: 'slow_compute', arguments: { seconds: 0, label: 'b' }, task: { ttl: 120_000, pollInterval: 500, of: 'ours' } });
    const none = await session.call('tools/call', { name: 'slow_compute', arguments: { seconds: 0, label: 'c' }, task: {} });
    const got = await session.get(none.task.taskId);
    const asking = await session.call('tools/call', { name: 'confirm_delete', arguments: { filename: 'x' }, task: {} });
    for (const { task } of [first, asking]) await session.call('tasks/cancel', { taskId: task.taskId });
    const results = [first, again, none, asking];
    return [
      check('tasks-2025-nested', 'The task is nested, and nothing of the result is beside it', results.flatMap(nested)),
      check('tasks-2025-at-once', 'The answer does not wait for the work', took < 3_000 ? [] : [`it took ${took} ms`]),
      check('tasks-2025-working', 'The first status is working', results.filter(({ task }) => task.status !== 'working').map(({ task }) => `it is ${task.status}`)),
      check('tasks-2025-times', 'The times are RFC 3339 and now', results.flatMap(times)),
      check('tasks-2025-ids', 'Every task has an id of its own, long enough not to be guessed', ids(results)),
      check('tasks-2025-ttl', 'ttl is a positive number or null, and tasks/get says the same', ttl(none.task, got)),
      check('tasks-2025-poll-interval', 'pollInterval, where there is one, is positive', results.filter(({ task }) => task.pollInterval !== undefined && !(task.pollInterval > 0)).map(({ task }) => `it is ${task.pollInterval}`)),
    ];
  }
}

function nested(result) {
  const beside = Object.keys(result).filter((name) => !['task', '_meta'].includes(name));
  const inside = ['result', 'error', 'content', 'structuredContent'].filter((name) => name in result.task);
  return [...beside.map((name) => `${name} is beside the task`), ...inside.map((name) => `${name} is in the task`)];
}

function times({ task }) {
  const near = (text) => Math.abs(Date.parse(text) - Date.now()) < 60_000;
  return ['createdAt', 'lastUpdatedAt'].filter((name) => !near(task[name])).map((name) => `${name} is ${task[name]}`);
}

function ids(results) {
  const all = results.map(({ task }) => task.taskId);
  const short = all.filter((id) => id.length < 22).map((id) => `${id} is short`);
  return new Set(all).size === all.length ? short : [...short, 'two tasks have one id'];
}

function ttl(created, got) {
  const errors = [created, got].filter(({ ttl }) => ttl !== null && !(ttl > 0)).map(({ ttl }) => `ttl is ${ttl}`);
  return created.ttl === got.ttl ? errors : [...errors, `created with ${created.ttl}, tasks/get says ${got.ttl}`];
}
