import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

import { finishedFiles, withoutUnusedKatex, woff2Only } from "./staticFiles.ts";

/** What an annotation session needs from its first moment on. */
const SESSION = ["src/pages/annotate/AnnotatePage.tsx", "src/pages/annotate/session/AnnotationSession.tsx"];
const SCRIPT = /\.[cm]?[jt]sx?$/;
const MARKDOWN = /node_modules[\\/](react-markdown|remark-|micromark|mdast-util|hast-util-(to-jsx|whitespace)|unified|vfile|property-information)/;
const CONTROLS =
  /@mantine[\\/]core[\\/].*[\\/](ScrollArea|Modal\w*|SegmentedControl|FloatingIndicator|Switch|Textarea|TextInput|Table|Progress|InlineInput|InputBase|Paper|Title|Anchor)[\\/]|icons[\\/](IconX|IconCheck|IconChevronRight)\.mjs$/;

export default defineConfig({
  plugins: [react(), withoutUnusedKatex(), woff2Only(), finishedFiles(SESSION)],
  build: {
    outDir: "../assay_web/static",
    emptyOutDir: true,
    manifest: true,
    chunkSizeWarningLimit: 900,
    // Few files, as each asks anew: what every page needs, what reads Markdown, what most pages need.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: "page", test: SCRIPT, tags: ["$initial"] },
            { name: "markdown", test: MARKDOWN },
            { name: "controls", test: CONTROLS },
            { name: "texts", test: /src[\\/]components[\\/](Messages|FormattedText|later)\.tsx?$|src[\\/]format[\\/]/ },
          ],
        },
      },
    },
    // These know light-dark(). For older ones it would be rewritten in a way that takes `color-scheme` from the very file
    // it stands in, and every colour of ours would be lost.
    cssTarget: ["chrome123", "edge123", "firefox120", "safari17.5"],
  },
  // `npm run dev` beside `assay web --open`.
  server: { proxy: { "/api": { target: "http://127.0.0.1:8080", changeOrigin: true } } },
  test: {
    environment: "jsdom",
    globals: true,
    setupFiles: ["src/testing/setup.ts"],
    include: ["src/**/*.test.{ts,tsx}"],
    testTimeout: 240_000, // a busy machine types slowly
    // One process and one page for all files, which setup.ts clears after each test and file: a page of its own for each
    // makes jsdom and reads the component library again, four times the whole run's work.
    pool: "threads",
    isolate: false,
    maxWorkers: 1,
  },
});
