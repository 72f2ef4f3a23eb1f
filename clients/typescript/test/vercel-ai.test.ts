import assert from "node:assert/strict";
import { test } from "node:test";
import { MockLanguageModelV2 } from "ai/test";
import { reply } from "../examples/vercel-ai.js";
import { Reverie } from "../src/client.js";

test("the model is given what is remembered", async () => {
  const token = process.env["REVERIE_TOKEN"]!;
  const memory = new Reverie({ agent: "vercel", url: process.env["REVERIE_URL"]!, token });
  await memory.remember({ content: "Kate is allergic to walnuts", pinned: true, wait: "searchable" });
  const model = new MockLanguageModelV2({
    doGenerate: async ({ prompt }) => ({
      finishReason: "stop",
      usage: { inputTokens: 1, outputTokens: 1, totalTokens: 2 },
      content: [{ type: "text", text: JSON.stringify(prompt[0]) }],
      warnings: [],
    }),
  });
  assert.match(await reply(memory, model, "chat-42", "What must Kate not eat?"), /allergic to walnuts/);
});
