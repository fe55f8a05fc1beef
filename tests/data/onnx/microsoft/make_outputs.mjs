// What onnxruntime (npm onnxruntime-node 1.30.0, optimisations off) computes for the graphs
// of make_graphs.py.
//
//     node make_outputs.mjs FOLDER     NAME.onnx, NAME.inputs.safetensors -> NAME.safetensors
import fs from 'node:fs';
import ort from 'onnxruntime-node';

const folder = process.argv[2];
for (const file of fs.readdirSync(folder).filter((name) => name.endsWith('.inputs.safetensors'))) {
    const name = file.slice(0, -'.inputs.safetensors'.length);
    const bytes = fs.readFileSync(`${folder}/${file}`);
    const length = Number(bytes.readBigUInt64LE(0));
    const header = JSON.parse(bytes.subarray(8, 8 + length).toString());
    let body = bytes.subarray(8 + length);
    const session = await ort.InferenceSession.create(`${folder}/${name}.onnx`, { graphOptimizationLevel: 'disabled' });
    const feeds = {};
    for (const key of session.inputNames) {
        const [from, to] = header[key].data_offsets;
        feeds[key] = new ort.Tensor('int64', new BigInt64Array(Uint8Array.from(body.subarray(from, to)).buffer), header[key].shape);
    }
    const results = await session.run(feeds);
    for (const [key, { dims, data }] of Object.entries(results)) {
        const raw = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
        header[key] = { dtype: 'F32', shape: [...dims], data_offsets: [body.length, body.length + raw.length] };
        body = Buffer.concat([body, raw]);
    }
    let text = Buffer.from(JSON.stringify(header));
    text = Buffer.concat([text, Buffer.alloc((8 - (text.length % 8)) % 8, ' ')]);
    const size = Buffer.alloc(8);
    size.writeBigUInt64LE(BigInt(text.length));
    fs.writeFileSync(`${folder}/${name}.safetensors`, Buffer.concat([size, text, body]));
    fs.unlinkSync(`${folder}/${file}`);
}
