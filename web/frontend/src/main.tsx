import "@mantine/core/styles.css";
import "./app/app.css";

import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { lazy, StrictMode, Suspense } from "react";
import { createRoot } from "react-dom/client";
import { BrowserRouter } from "react-router";

import { Problem } from "./api/problems";
import { App } from "./app/App";
import { AREAS } from "./app/areas";
import { loadFont, loadNotifications } from "./app/afterwards";
import { readableColours, theme } from "./app/theme";
import { loadLanguage, preferredLanguage } from "./i18n";

// What passes by itself (the store is held, the server starts again) is tried again until it has passed.
const queries = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (failures, error) => error instanceof Problem && error.passing && failures < 200,
      retryDelay: (failures, error) =>
        Math.min(1000 * 1.5 ** failures, 1000 * ((error instanceof Problem && error.retryAfter) || 5)),
      refetchOnWindowFocus: false,
      networkMode: "always",
    },
    mutations: { networkMode: "always" },
  },
});

// The page's file comes along with the session, and not after it.
AREAS.find(({ path }) => window.location.pathname.startsWith(path))?.page.preload();

const Notifications = lazy(loadNotifications);

// A catalogue that cannot be had leaves the page in English.
await loadLanguage(preferredLanguage()).catch(() => undefined);

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={readableColours} defaultColorScheme="auto">
      <Suspense>
        <Notifications />
      </Suspense>
      <QueryClientProvider client={queries}>
        <BrowserRouter>
          <App />
        </BrowserRouter>
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);

void loadFont();
