import { MantineProvider } from "@mantine/core";
import { render, screen, within } from "@testing-library/react";
import { expect, it } from "vitest";

import { WorthTable } from "./WorthTable";

const right = { hits: 3, of: 40, share: 0.1, low: 0.03, high: 0.2 };

it("says of each source whether its labels are to be trusted, and what they weigh", () => {
  render(
    <MantineProvider>
      <WorthTable
        worth={[
          { kind: "source", name: "liar", category: null, right, worth: "adversarial", weight: 0.6 },
          { kind: "source", name: "liar", category: "code", right, worth: "chance", weight: 0 },
        ]}
      />
    </MantineProvider>,
  );
  const row = screen.getByRole("row", { name: /liar/ });
  expect(within(row).getByText("adversarial")).toBeInTheDocument();
  expect(within(row).getByText("0.60")).toBeInTheDocument();
  expect(row).toHaveTextContent("10.0 % 3 % to 20 %, of 40");
  expect(screen.getByRole("row", { name: /code/ })).toHaveTextContent("chance");
});
