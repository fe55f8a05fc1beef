// Classifies texts in transformers.js (npm @huggingface/transformers 4.3.1) with a folder that
// compress wrote, and compares the decisions.
//
//     node tjs_classify.mjs FOLDER TEXTS.jsonl OUTPUTS.safetensors
//
// TEXTS has a map with "text" on each line, OUTPUTS comes from `compress run MODEL --jsonl
// TEXTS --output OUTPUTS`. Exits with 1 where a decision differs.
import fs from 'node:fs';
import path from 'node:path';
import { env, pipeline } from '@huggingface/transformers';
import { readTensors } from './ort_outputs.mjs';

const [folder, texts, outputs] = process.argv.slice(2);
env.allowRemoteModels = false;
env.allowLocalModels = true;
env.localModelPath = path.dirname(path.resolve(folder)) + '/';
env.useFSCache = false;
const lines = fs.readFileSync(texts, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line).text);
const { data, shape } = readTensors(outputs).logits;
const classify = await pipeline('text-classification', path.basename(folder), { dtype: 'fp32', device: 'cpu' });
let same = 0;
for (let i = 0; i < lines.length; i++) {
    const row = Array.from(data.slice(i * shape[1], (i + 1) * shape[1]));
    const [{ label }] = await classify(lines[i], { top_k: 1 });
    same += label === classify.model.config.id2label[row.indexOf(Math.max(...row))];
}
console.log(`${same} of ${lines.length} decisions are the same`);
process.exit(same === lines.length && shape[0] === lines.length ? 0 : 1);
