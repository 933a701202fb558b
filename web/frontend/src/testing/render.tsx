import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, type RenderResult } from "@testing-library/react";
import { MantineProvider } from "@mantine/core";
import type { ReactElement } from "react";
import { MemoryRouter } from "react-router";

import { readableColours, theme } from "../app/theme";

/** Render a component inside everything that the application gives it, at an address. */
export function renderAt(element: ReactElement, address = "/"): RenderResult {
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  return render(
    <MantineProvider theme={theme} cssVariablesResolver={readableColours} env="test">
      <QueryClientProvider client={queries}>
        <MemoryRouter initialEntries={[address]}>{element}</MemoryRouter>
      </QueryClientProvider>
    </MantineProvider>,
  );
}
