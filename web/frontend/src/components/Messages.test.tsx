import { fireEvent, screen, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { axe } from "vitest-axe";

import { renderAt } from "../testing/render";
import { ImagesFrom, Messages, ResponseTurns, type Part, type Turn } from "./Messages";

const HOSTILE = '<img src=x onerror="window.ran = true"><script>window.ran = true</script>';
const TURNS: Turn[] = [
  {
    role: "system",
    content: [
      { type: "text", text: "Be brief." },
      { type: "tool_definition", name: "weather", description: "of a town", parameters: '{"type":"object"}' },
    ],
  },
  { role: "developer", content: "No jokes." },
  { role: "user", content: [{ type: "image", content_hash: "ab".repeat(16), media_type: "image/png" }, { type: "text", text: "**Where?**" }] },
  {
    role: "assistant",
    content: [
      { type: "thinking", text: "It looks like Ulm." },
      { type: "tool_call", name: "weather", arguments: '{"town":"Ulm","day":1.0}', call_id: "c1" },
    ],
  },
  { role: "tool", content: [{ type: "tool_result", content: HOSTILE, call_id: "c1" }] },
  { role: "assistant", content: "Rain." },
];

describe("Messages", () => {
  it("shows every part with its role: folded tools and thinking, calls in lines, images from where it is told", async () => {
    const { container } = renderAt(
      <ImagesFrom value={(hash) => `/item/${hash}`}>
        <Messages turns={TURNS} plain={false} />
      </ImagesFrom>,
    );
    expect([...container.querySelectorAll(".message")].map((one) => one.getAttribute("data-role"))).toEqual(["system", "developer", "user", "assistant", "tool", "assistant"]);
    for (const name of ["Tool weather", "Thinking"]) expect(screen.getByText(name).closest("details")).not.toHaveAttribute("open");
    expect(within(screen.getByRole("group", { name: "Calls weather" })).getByText(/town/).textContent).toBe('{\n  "town": "Ulm",\n  "day": 1.0\n}');
    expect(screen.getByRole("img")).toHaveAttribute("src", `/item/${"ab".repeat(16)}`);
    expect(container.querySelector("strong, b")).not.toBeNull();
    expect((await axe(container)).violations).toEqual([]);
  });

  it("shows what a tool returned as it was written, and runs none of it", () => {
    renderAt(<Messages turns={TURNS} plain={false} />);
    const result = screen.getByRole("group", { name: "Result of weather" });
    expect(result).toHaveTextContent(HOSTILE);
    expect(result.querySelector("img, script")).toBeNull();
    expect(window).not.toHaveProperty("ran");
  });

  it("never fetches an address, and names an image that does not load", () => {
    const content = (url: string): Turn[] => [{ role: "user", content: [{ type: "image", url }] }];
    const { container } = renderAt(<Messages turns={[...content("https://evil.example/pixel.png"), ...content("javascript:window.ran=true")]} plain={false} />);
    expect(container.querySelector("img")).toBeNull();
    expect(container.querySelectorAll("a").length).toBe(1);
    expect(screen.getByText(/javascript:window/)).not.toHaveAttribute("href");
    renderAt(<Messages turns={[TURNS[2]!]} plain={false} />);
    fireEvent.error(screen.getByRole("img"));
    expect(screen.getByText(/abababababab \(image\/png\) cannot be shown here/)).toBeInTheDocument();
  });

  it("shows a plain response without a role, and a typed one in its turns", () => {
    const { container } = renderAt(<ResponseTurns text="**Yes.**" turns={null} plain={true} />);
    expect(container.querySelector(".message")).toHaveTextContent(/^\*\*Yes\.\*\*$/);
    renderAt(<ResponseTurns text="" turns={TURNS.slice(3)} plain={true} />);
    expect(screen.getAllByText("assistant").length).toBe(2);
  });

  it("names a part of a kind that it does not know", () => {
    renderAt(<Messages turns={[{ role: "user", content: [{ type: "audio", seconds: 3 } as unknown as Part] }]} plain={false} />);
    expect(screen.getByRole("group", { name: "A part of type audio, which this page does not draw" })).toHaveTextContent('"seconds": 3');
  });
});
