// Records what the `tokenizers` library of Hugging Face (npm tokenizers 0.23.2, the Rust
// original) makes of the texts that make_pieces.py wrote: FOLDER/cases.json of each.
//
//     node record_cases.mjs unigram unigram_bytes      (in tests/data/text)
import fs from 'node:fs';
import { createRequire } from 'node:module';
const { Tokenizer } = createRequire(process.env.MODULES ?? import.meta.url)('tokenizers');

const texts = JSON.parse(fs.readFileSync('pieces_texts.json', 'utf8'));
for (const folder of process.argv.slice(2)) {
    const tokenizer = Tokenizer.fromFile(`${folder}/tokenizer.json`);
    const lines = [];
    for (const text of texts) {
        const ids = (await tokenizer.encode(text, null, { addSpecialTokens: true })).getIds();
        lines.push(JSON.stringify({ text, ids, decoded: await tokenizer.decode(ids, true) }));
    }
    fs.writeFileSync(`${folder}/cases.json`, `[\n${lines.join(',\n')}\n]\n`);
}
fs.unlinkSync('pieces_texts.json');
