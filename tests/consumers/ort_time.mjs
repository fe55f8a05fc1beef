// Compares the time that two ONNX files take in onnxruntime on the same inputs.
//
//     node ort_time.mjs BEFORE.onnx AFTER.onnx INPUTS.safetensors [LIMIT] [RUNS] [THREADS]
//
// Runs alternate, so that what else the machine does meets both; the fastest of RUNS (40)
// counts. Exits with 1 where AFTER takes more than LIMIT (0.6) times as long.
import ort from 'onnxruntime-node';
import { feedsOf, readTensors } from './ort_outputs.mjs';

const [before, after, inputs, limit = '0.6', runs = '40', threads = '1'] = process.argv.slice(2);
const options = { intraOpNumThreads: Number(threads), interOpNumThreads: 1 };
const sessions = [], feeds = [];
for (const path of [before, after]) {
    const session = await ort.InferenceSession.create(path, options);
    sessions.push(session);
    feeds.push(feedsOf(session, readTensors(inputs)));
    for (let i = 0; i < 3; i++) await session.run(feeds.at(-1));
}
const times = [[], []];
for (let i = 0; i < Number(runs); i++)
    for (let which = 0; which < 2; which++) {
        const start = performance.now();
        await sessions[which].run(feeds[which]);
        times[which].push(performance.now() - start);
    }
const best = times.map((list) => Math.min(...list));
const middle = times.map((list) => list.sort((a, b) => a - b)[list.length >> 1]);
console.log(`before ${best[0].toFixed(2)} ms (median ${middle[0].toFixed(2)}), after ${best[1].toFixed(2)} ms (median ${middle[1].toFixed(2)}): ${(best[1] / best[0]).toFixed(3)}`);
process.exit(best[1] / best[0] <= Number(limit) ? 0 : 1);
