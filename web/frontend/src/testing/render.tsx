import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, type RenderResult } from "@testing-library/react";
import { MantineProvider } from "@mantine/core";
import type { ReactElement } from "react";
import { MemoryRouter } from "react-router";
import { onTestFinished } from "vitest";

import { readableColours, theme } from "../app/theme";

/** Render a component inside everything that the application gives it, at an address. `retry`: ask again what failed. */
export function renderAt(element: ReactElement, address = "/", retry = false): RenderResult {
  const queries = new QueryClient({ defaultOptions: { queries: { retry } } });
  onTestFinished(() => queries.clear()); // nothing is asked again while others are tested
  return render(
    <MantineProvider theme={theme} cssVariablesResolver={readableColours} env="test">
      <QueryClientProvider client={queries}>
        <MemoryRouter initialEntries={[address]}>{element}</MemoryRouter>
      </QueryClientProvider>
    </MantineProvider>,
  );
}
