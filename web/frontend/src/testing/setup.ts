import "@testing-library/jest-dom/vitest";
import { cleanup, configure } from "@testing-library/react";
import { afterAll, afterEach, vi } from "vitest";

import { markdown } from "../components/FormattedText";
import { clearPage } from "./page";

configure({ asyncUtilTimeout: 60_000 }); // how long something takes to show says how busy the machine is

// What jsdom lacks and the component library asks for. Configurable: this runs before each file, on one page.
Object.defineProperty(window, "matchMedia", {
  writable: true,
  configurable: true,
  value: (query: string) => ({
    matches: false,
    media: query,
    onchange: null,
    addListener: vi.fn(),
    removeListener: vi.fn(),
    addEventListener: vi.fn(),
    removeEventListener: vi.fn(),
    dispatchEvent: vi.fn(),
  }),
});
class Observer {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}
window.ResizeObserver = Observer;
Object.defineProperty(document, "fonts", { configurable: true, value: new EventTarget() });
window.HTMLElement.prototype.scrollIntoView = () => {};

afterEach(() => {
  cleanup();
  window.localStorage.clear();
});
afterAll(clearPage);
await markdown.load(); // texts are shown as the page shows them from the second on
