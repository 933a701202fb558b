import {
  ActionIcon,
  AppShell,
  Badge,
  Burger,
  Group,
  Menu,
  NavLink,
  Text,
  Tooltip,
  UnstyledButton,
  useComputedColorScheme,
  useMantineColorScheme,
} from "@mantine/core";
import { useDisclosure, useLocalStorage } from "@mantine/hooks";
import { IconApi, IconKey, IconLogin2, IconLogout, IconMoon, IconSun, IconUser } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Suspense, type ReactNode } from "react";
import { NavLink as RouterLink, useLocation } from "react-router";

import { api } from "../api/client";
import { LanguageItems } from "../components/LanguageItems";
import { lazyPage } from "../components/lazyPage";
import { PageWaiting } from "../components/PageWaiting";
import { here, signInAddress } from "../pages/access/provider";
import { roleName } from "../pages/access/roles";
import { Undelivered } from "../pages/annotate/Undelivered";
import { firstHourGoesOn } from "../pages/home/following";
import { AREAS, FIRST_HOUR, HOME } from "./areas";
import { Breadcrumbs } from "./PlaceNames";
import { useSession, type Role } from "../api/session";
import { t } from "../i18n";

const FirstHourBar = lazyPage(() => import("../pages/home/FirstHourBar"));

/** Navigation at the left, who is signed in at the top, the page beside. */
export function Shell({ children }: { children: ReactNode }) {
  const session = useSession();
  const [opened, { toggle, close }] = useDisclosure();
  const { pathname } = useLocation();
  // Texts beside each other need the room: an annotation session begins without the areas, until its person wants them.
  const annotating = /^\/annotate\/queue\/[^/]+(\/adjudicate)?$/.test(pathname);
  const [folded, setFolded] = useLocalStorage({ key: "assay.areas-folded", defaultValue: false, getInitialValueInEffect: false });
  const [foldedThere, setFoldedThere] = useLocalStorage({ key: "assay.areas-folded-in-session", defaultValue: true, getInitialValueInEffect: false });
  const away = annotating ? foldedThere : folded;
  const areas = [HOME, ...AREAS].filter((area) => session.permissions.includes(area.needs));
  return (
    <AppShell header={{ height: 44 }} navbar={{ width: 168, breakpoint: "sm", collapsed: { mobile: !opened, desktop: away } }} padding="sm" transitionDuration={0}>
      <a className="skip-link" href="#page">{t("Skip to the page")}</a>
      <AppShell.Header>
        <Group h="100%" px="sm" justify="space-between" wrap="nowrap">
          <Group gap="xs" wrap="nowrap" style={{ minWidth: 0 }}>
            <Burger opened={opened} onClick={toggle} hiddenFrom="sm" size="sm" aria-label={t("Navigation")} />
            <Burger
              opened={!away}
              onClick={() => (annotating ? setFoldedThere(!away) : setFolded(!away))}
              visibleFrom="sm"
              size="xs"
              aria-label={away ? t("Show the areas") : t("Fold the areas")}
              aria-expanded={!away}
            />
            <Text fw={700} size="lg" component={RouterLink} to="/" style={{ textDecoration: "none", color: "inherit" }}>
              Assay
            </Text>
            {session.open_access && (
              <Tooltip label={t("Started with --open: no accounts, everybody on this machine may do everything")}>
                <Badge color="yellow" variant="light" size="sm" tabIndex={0}>{t("open access")}</Badge>
              </Tooltip>
            )}
            <Breadcrumbs />
          </Group>
          <Group gap="xs" wrap="nowrap">
            <ColorSchemeSwitch />
            <PersonMenu name={session.name} role={session.role} accounts={!session.open_access} provider={session.provider ?? null} />
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p={6} component="nav" aria-label={t("Areas")}>
        {areas.map((area) => (
          <NavLink
            key={area.path}
            component={RouterLink}
            to={area.path}
            label={t(area.label)}
            leftSection={<area.icon size={16} stroke={1.6} />}
            active={area === HOME ? pathname === HOME.path || pathname === FIRST_HOUR.path : pathname.startsWith(area.path)}
            onClick={close}
            style={{ borderRadius: 4 }}
          />
        ))}
      </AppShell.Navbar>
      <AppShell.Main id="page" tabIndex={-1} style={{ outline: "none" }}>
        <Undelivered person={session.name} />
        {firstHourGoesOn() && !annotating && (
          <Suspense fallback={null}>
            <FirstHourBar />
          </Suspense>
        )}
        <Suspense fallback={<PageWaiting />}>{children}</Suspense>
      </AppShell.Main>
    </AppShell>
  );
}

function ColorSchemeSwitch() {
  const { setColorScheme } = useMantineColorScheme();
  const dark = useComputedColorScheme("light") === "dark";
  return (
    <ActionIcon
      variant="subtle"
      color="gray"
      aria-label={dark ? t("Light colours") : t("Dark colours")}
      onClick={() => setColorScheme(dark ? "light" : "dark")}
    >
      {dark ? <IconSun size={18} /> : <IconMoon size={18} />}
    </ActionIcon>
  );
}

function PersonMenu({ name, role, accounts, provider }: { name: string; role: Role; accounts: boolean; provider: string | null }) {
  const queries = useQueryClient();
  const signOut = useMutation({
    mutationFn: () => api.DELETE("/api/session"),
    onSuccess: () => {
      queries.clear();
      window.location.assign("/");
    },
  });
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <UnstyledButton aria-label={t("Signed in as {{name}}, {{role}}", { name, role: roleName(role) })}>
          <Group gap={6} wrap="nowrap">
            <IconUser size={18} stroke={1.6} />
            <Text size="sm" visibleFrom="sm">
              {name}
            </Text>
          </Group>
        </UnstyledButton>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          {name}, {roleName(role)}
        </Menu.Label>
        {accounts && (
          <>
            <Menu.Item leftSection={<IconKey size={16} />} component={RouterLink} to="/password">
              {t("Change password")}
            </Menu.Item>
            <Menu.Item leftSection={<IconApi size={16} />} component={RouterLink} to="/tokens">
              {t("API tokens")}
            </Menu.Item>
            {provider !== null && (
              <Menu.Item leftSection={<IconLogin2 size={16} />} component="a" href={signInAddress(here())}>
                {t("Sign in by {{provider}} too", { provider })}
              </Menu.Item>
            )}
          </>
        )}
        <Menu.Divider />
        <LanguageItems />
        <Menu.Divider />
        <Menu.Item leftSection={<IconLogout size={16} />} onClick={() => signOut.mutate()}>
          {t("Sign out")}
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
