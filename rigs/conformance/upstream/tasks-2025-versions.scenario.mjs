// Clients of the versions before 2025-11-25 make plain calls.

import { Scenario, accept, check } from './session.mjs';

const OLDER = ['2025-06-18', '2025-03-26', '2024-11-05'];

export default class extends Scenario {
  name = 'tasks-2025-versions';
  description =
    'A client of an older version gets the version it asked for and calls tools plainly. Tasks are not part of that version: they are ' +
    'not declared, and a task in the parameters of a call is ignored.';

  async judge({ open }) {
    const checks = [];
    for (const version of OLDER) {
      const session = await open({ version, capabilities: {} });
      const call = (name, args, more) => session.request('tools/call', { name, arguments: args, ...more });
      const quick = await call('greet', { name: 'Ada' });
      const slow = await call('slow_compute', { seconds: 1, label: 'older' });
      const tasked = await this.tasked(session);
      const { tasks } = session.server.capabilities;
      checks.push(
        check(`tasks-2025-older-agreed-${version}`, `${version} is agreed when it is asked for`, session.version === version ? [] : [`it is ${session.version}`], 'basic/lifecycle'),
        check(`tasks-2025-older-call-${version}`, `Plain calls of ${version} return their result`, [...text(quick, 'Hello, Ada!'), ...text(slow, 'older')], 'server/tools'),
        check(`tasks-2025-older-undeclared-${version}`, `Tasks are not declared to ${version}`, tasks ? [`it declares ${JSON.stringify(tasks)}`] : []),
        check(`tasks-2025-older-ignored-${version}`, `A task in the parameters of a call of ${version} is ignored`, text(tasked, 'ignored')),
      );
    }
    const asking = 'Before 2025-11-25 a plain call asks where the version has elicitation, and only there';
    checks.push(check('tasks-2025-older-asks', asking, [...(await asks(open, '2025-06-18')), ...(await asks(open, '2025-03-26'))], 'client/elicitation'));
    return checks;
  }

  /** Calls with `task`, and expects the shape of a plain call. */
  async tasked(session) {
    const exchange = await session.start('tools/call', { name: 'slow_compute', arguments: { seconds: 0, label: 'ignored' }, task: { ttl: 60_000 } });
    const reply = await exchange.response();
    if (reply?.result && !reply.result.task) session.expected.set(exchange.id, 'CallToolResult');
    for (const seen of session.seen) if (seen.frame === reply) seen.type = session.type(reply);
    return reply ?? {};
  }
}

async function asks(open, version) {
  const may = version === '2025-06-18';
  const session = await open({ version, capabilities: may ? { elicitation: {} } : {} });
  const call = await session.start('tools/call', { name: 'confirm_delete', arguments: { filename: 'older.txt' } });
  const asked = await call.question(may ? 5_000 : 1_000);
  if (Boolean(asked) !== may) return [`${version}: asked ${JSON.stringify(asked)}`];
  if (asked) await session.answer(asked, accept({ confirm: true }));
  return may ? text(await call.response(5_000), 'deleted') : [];
}

function text(reply, wanted) {
  const said = reply.result?.content?.[0]?.text;
  return said?.includes(wanted) ? [] : [`the reply is ${JSON.stringify(reply.result ?? reply.error)}`];
}
