// A question shows up on the stream with its requests, and its answer moves the task on (C-20, C-33).

import { EXTENSION, begin, call, check, listen, statuses } from './wire.mjs';

export default class {
  name = 'tasks-listen-questions';
  source = EXTENSION;
  description =
    'A task that asks is told as input_required with its inputRequests. After tasks/update it is told again, until it ends.';

  async run({ serverUrl }) {
    const taskId = await begin(serverUrl, 'confirm_delete', { filename: 'listen.txt' });
    const asked = await listen(serverUrl, { taskIds: [taskId] }, {
      id: 4731,
      enough: (frames) => statuses(frames).some((frame) => frame.params.status === 'input_required'),
      within: 5_000,
    });
    const question = statuses(asked.frames).find((frame) => frame.params.status === 'input_required')?.params;
    const keys = Object.keys(question?.inputRequests ?? {});
    const answers = Object.fromEntries(keys.map((key) => [key, { action: 'accept', content: { confirm: true } }]));
    const answered = await listen(serverUrl, { taskIds: [taskId] }, {
      id: 4732,
      during: () => call(serverUrl, 'tasks/update', { taskId, inputResponses: answers }),
    });
    const last = statuses(answered.frames).at(-1)?.params;
    return [
      check('sep-2663-listen-question', 'The question is told with its requests', keys.length > 0 ? [] : ['no inputRequests'], {
        question,
      }),
      check(
        'sep-2663-listen-answered',
        'After the answer the end is told, without inputRequests',
        last?.status === 'completed' && !('inputRequests' in last) ? [] : [`the last told is ${JSON.stringify(last)}`],
      ),
    ];
  }
}
