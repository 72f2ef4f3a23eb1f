// An agent with memory by the Vercel AI SDK: the context is the system prompt, and what was said is ingested.

import { generateText, type LanguageModel } from "ai";
import type { Reverie } from "../src/client.js";

export async function reply(memory: Reverie, model: LanguageModel, session: string, question: string) {
  await memory.sessions.start({ session }); // the first time; later it changes nothing
  const context = await memory.context({ session, query: question });
  const { text } = await generateText({ model, system: context.text, prompt: question });
  await memory.ingest({
    session,
    messages: [
      { role: "user", content: question },
      { role: "assistant", content: text },
    ],
  });
  return text;
}
