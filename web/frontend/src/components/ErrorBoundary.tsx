import { Button, Group, Stack } from "@mantine/core";
import { Component, type ReactNode } from "react";

import { t } from "../i18n";
import { Failure } from "./States";

interface ErrorBoundaryProps {
  /** What failed, for the message: "Runs". */
  what: string;
  /** Another value tries again: the address, where the part shows another thing at another address. */
  at?: string;
  onFailure?: () => void;
  children: ReactNode;
}

interface ErrorBoundaryState {
  error: unknown;
  failed: boolean;
  at: string | undefined;
}

/** Keeps what fails while it is shown from taking the rest of the page with it. */
export class ErrorBoundary extends Component<ErrorBoundaryProps, ErrorBoundaryState> {
  override state: ErrorBoundaryState = { error: null, failed: false, at: this.props.at };

  static getDerivedStateFromError(error: unknown): Partial<ErrorBoundaryState> {
    return { error, failed: true };
  }

  static getDerivedStateFromProps({ at }: ErrorBoundaryProps, state: ErrorBoundaryState): Partial<ErrorBoundaryState> | null {
    return at === state.at ? null : { error: null, failed: false, at };
  }

  override componentDidCatch(): void {
    this.props.onFailure?.();
  }

  override render(): ReactNode {
    if (!this.state.failed) return this.props.children;
    const message = this.state.error instanceof Error ? this.state.error.message : String(this.state.error);
    return (
      <Stack gap="sm">
        <Failure error={new Error(t("{{what}} cannot be shown: {{message}}", { what: this.props.what, message }))} />
        <Group gap="xs">
          <Button variant="light" onClick={() => this.setState({ error: null, failed: false })}>
            {t("Try again")}
          </Button>
          <Button variant="subtle" color="gray" onClick={() => window.location.reload()}>
            {t("Reload the page")}
          </Button>
        </Group>
      </Stack>
    );
  }
}
