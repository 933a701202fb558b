import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { axe } from "vitest-axe";

import { ChartFigure } from "./ChartFigure";

test("a chart has its name, and its table when asked for", async () => {
  const { container } = render(
    <MantineProvider>
      <ChartFigure title="Accuracy" height={100} table={<table aria-label="figures" />}>
        drawn
      </ChartFigure>
    </MantineProvider>,
  );
  expect(screen.getByRole("img", { name: "Accuracy" })).toHaveTextContent("drawn");
  expect((await axe(container)).violations).toEqual([]);
  fireEvent.click(screen.getByRole("switch", { name: "Table of: Accuracy" }));
  expect(screen.queryByRole("img")).toBeNull();
  expect(screen.getByRole("region", { name: "Table of Accuracy" })).toContainElement(screen.getByRole("table"));
});
