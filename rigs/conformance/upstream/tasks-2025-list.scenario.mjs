// tasks/list finds every task that tasks/get finds, page by page (A-54, A-55, A-64, D-17).

import { Scenario, check, refused, terminal } from './session.mjs';

const TASKS = 60;

export default class extends Scenario {
  name = 'tasks-2025-list';
  description =
    'Every task of the requestor is in tasks/list, once, with what tasks/get says. Where there is more than a page there is a ' +
    'cursor that leads to the rest. A cursor that the server never gave is -32602.';

  async judge({ open }) {
    const session = await open();
    const ids = [];
    while (ids.length < TASKS) {
      const begun = Array.from({ length: 6 }, () => session.begin('slow_compute', { seconds: 0, label: 'list' }));
      ids.push(...(await Promise.all(begun)).map((task) => task.taskId));
    }
    await Promise.all(ids.map((id) => session.poll(id, terminal)));
    const { pages, tasks } = await all(session);
    const got = await session.get(ids[0]);
    const listed = tasks.find((task) => task.taskId === ids[0]);
    const bad = await session.request('tasks/list', { cursor: 'no-such-cursor' });
    return [
      check('tasks-2025-listed', 'Every task is listed', ids.filter((id) => !tasks.some((task) => task.taskId === id)).map((id) => `${id} is missing`)),
      check('tasks-2025-listed-once', 'No task is listed twice', tasks.length === new Set(tasks.map((task) => task.taskId)).size ? [] : ['a task is on two pages']),
      check('tasks-2025-listed-same', 'A listed task is what tasks/get says', JSON.stringify(sorted(listed)) === JSON.stringify(sorted(got)) ? [] : [`${JSON.stringify(listed)}, tasks/get says ${JSON.stringify(got)}`]),
      check('tasks-2025-pages', 'More tasks than fit on a page come on several', pages > 1 ? [] : [`all ${tasks.length} are on one page`], 'server/utilities/pagination'),
      check('tasks-2025-bad-cursor', 'An unknown cursor is -32602', refused('tasks/list', bad, -32602), 'server/utilities/pagination'),
    ];
  }
}

async function all(session) {
  const tasks = [];
  let cursor;
  let pages = 0;
  do {
    const page = await session.call('tasks/list', cursor === undefined ? {} : { cursor });
    tasks.push(...page.tasks);
    cursor = page.nextCursor;
    pages += 1;
  } while (cursor !== undefined && pages < 100);
  return { pages, tasks };
}

const sorted = ({ _meta, pollInterval, ...task } = {}) => Object.fromEntries(Object.entries(task).sort());
