// What the server declares, and what a tool allows (A-8, A-35, A-38, A-40, A-41, A-87, D-12, D-13).

import { Scenario, check, refused } from './session.mjs';

export default class extends Scenario {
  name = 'tasks-2025-negotiation';
  description =
    'The capability names tools/call, list and cancel. tools/list says of each tool whether it runs as a task. A plain call of a ' +
    'tool that needs a task and a task of a tool that allows none are -32601. An optional tool is called either way.';

  async judge({ open }) {
    const session = await open();
    const { tools } = await session.call('tools/list');
    const modes = Object.fromEntries(tools.map((tool) => [tool.name, tool.execution?.taskSupport ?? 'forbidden']));
    const plain = await session.request('tools/call', { name: 'slow_compute', arguments: { seconds: 0, label: 'plain' } });
    const required = await session.request('tools/call', { name: 'failing_job', arguments: {} });
    const forbidden = await session.request('tools/call', { name: 'greet', arguments: { name: 'Ada' }, task: {} });
    const unknown = await session.request('tools/call', { name: 'no_such_tool', arguments: {} });
    const unknownTask = await session.request('tools/call', { name: 'no_such_tool', arguments: {}, task: {} });
    const method = await session.request('no/such/method', {});
    return [
      check('tasks-2025-capability', 'The capability declares tools/call, list and cancel', declared(session.server.capabilities.tasks)),
      check('tasks-2025-tool-modes', 'tools/list says which tools run as tasks', told(modes)),
      check('tasks-2025-optional-plain', 'An optional tool is called plainly', plain.result?.content ? [] : [JSON.stringify(plain.error)]),
      check('tasks-2025-required', 'A plain call of a tool that needs a task is -32601', refused('failing_job', required, -32601)),
      check('tasks-2025-forbidden', 'A task of a tool that allows none is -32601', refused('greet', forbidden, -32601)),
      check('tasks-2025-unknown-tool', 'An unknown tool is -32602, plain and as a task', [...refused('plain', unknown, -32602), ...refused('as a task', unknownTask, -32602)], 'server/tools'),
      check('tasks-2025-unknown-method', 'An unknown method is -32601', refused('no/such/method', method, -32601), 'basic'),
    ];
  }
}

function declared(tasks) {
  const well = tasks?.requests?.tools?.call && tasks.list && tasks.cancel;
  return well ? [] : [`it declares ${JSON.stringify(tasks)}`];
}

function told(modes) {
  const wanted = { greet: 'forbidden', slow_compute: 'optional', failing_job: 'required', protocol_error_job: 'optional', confirm_delete: 'optional', multi_input: 'optional' };
  const wrong = Object.entries(wanted).filter(([name, mode]) => modes[name] !== mode);
  return wrong.map(([name, mode]) => `${name} is ${modes[name]}, expected ${mode}`);
}
